"""Where decisions are saved, for replicas that start while a source is down: a file, or a ConfigMap.

Both are written at once when a workload has to come up or may go, and for the rest now and then. What can't
be written is logged, and nothing waits for it.
"""

import asyncio
import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Protocol

from gpuscale.base.clock import Clock
from gpuscale.base.errors import GpuscaleError, UnavailableError
from gpuscale.kube import mapping_of, text_of
from gpuscale.kube.client import CONFLICT, NOT_FOUND, ApiStatusError, JsonObject, KubeClient
from gpuscale.server.metricsapi.triggers.watch import TriggerWatch
from gpuscale.triggers import HeldTrigger, Key, TriggerDecision, decode, encode, newest

_LOG = logging.getLogger(__name__)
MAX_BYTES = 900 * 1024
"""The API server takes a ConfigMap of 1 MiB."""
_DATA_KEY = "decisions.json"
_TRIES = 8
_OLD_MS = 86_400_000
"""Decisions of triggers that nobody watches are dropped after a day."""
WRITE_S = 10.0
_RENEW_MS = 60_000
"""A decision that stays the same is written again after so long."""


class HeldStore(Protocol):
    """Saves decisions."""

    async def read(self) -> dict[Key, HeldTrigger]:
        """Return the saved decisions.

        Raises:
            UnavailableError: it can't be read now.
            UpstreamError: it may not be read.
        """
        ...

    async def write(self, held: Mapping[Key, HeldTrigger]) -> None:
        """Save these decisions beside those of other replicas; raises as `read`."""
        ...


class HeldFile:
    """A file of this replica's own.

    Args:
        path: of the file; it is replaced whole.
        clock: dates what is written.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock

    async def read(self) -> dict[Key, HeldTrigger]:
        try:
            text = await asyncio.to_thread(self._read)
        except FileNotFoundError:
            return {}
        except (OSError, UnicodeDecodeError) as error:
            raise UnavailableError(f"{self._path} can't be read: {error}") from error
        return decode(text, self._clock.now_ms())

    async def write(self, held: Mapping[Key, HeldTrigger]) -> None:
        text = encode(held, self._clock.now_ms(), MAX_BYTES)
        try:
            await asyncio.to_thread(self._write, text)
        except OSError as error:
            raise UnavailableError(f"{self._path} can't be written: {error}") from error

    def _read(self) -> str:
        with self._path.open(encoding="utf-8") as file:
            return file.read(2 * MAX_BYTES)

    def _write(self, text: str) -> None:
        beside = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            beside.write_text(text, encoding="utf-8")
            beside.replace(self._path)
        finally:
            beside.unlink(missing_ok=True)


class HeldConfigMap:
    """A ConfigMap shared by replicas; each write names the version it read, so that none undoes another.

    Args:
        client: of the API server.
        namespace: of the ConfigMap.
        name: of the ConfigMap; it is made where it is missing.
        clock: dates what is written.
    """

    def __init__(self, client: KubeClient, namespace: str, name: str, clock: Clock) -> None:
        self._client = client
        self._collection = f"/api/v1/namespaces/{namespace}/configmaps"
        self._path = f"{self._collection}/{name}"
        self._namespace, self._name = namespace, name
        self._clock = clock

    async def read(self) -> dict[Key, HeldTrigger]:
        body = await self._client.find(self._path)
        return {} if body is None else self._decoded(body)

    async def write(self, held: Mapping[Key, HeldTrigger]) -> None:
        for attempt in range(_TRIES):
            try:
                await self._write(held)
                return
            except ApiStatusError as error:
                if error.code not in {CONFLICT, NOT_FOUND} or attempt == _TRIES - 1:
                    raise

    async def _write(self, held: Mapping[Key, HeldTrigger]) -> None:
        body = await self._client.find(self._path)
        now_ms = self._clock.now_ms()
        theirs = {} if body is None else self._decoded(body)
        if body is not None and not _says_more(held, theirs):
            return
        kept = {k: h for k, h in theirs.items() if h.decision.measured_ms > now_ms - _OLD_MS}
        # Decisions dated far in the future by other replicas' clocks must not win for ever.
        for key, each in kept.items():
            if each.decision.measured_ms > now_ms:
                kept[key] = replace(each, decision=replace(each.decision, measured_ms=now_ms))
        text = encode(newest((held, kept)), now_ms, MAX_BYTES)
        metadata: JsonObject = {"name": self._name, "namespace": self._namespace}
        if body is None:
            made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
            await self._client.create(self._collection, {**made, "data": {_DATA_KEY: text}})
        else:
            data = {**mapping_of(body.get("data")), _DATA_KEY: text}
            await self._client.replace(self._path, {**body, "data": data})

    def _decoded(self, body: JsonObject) -> dict[Key, HeldTrigger]:
        text = text_of(mapping_of(body.get("data")).get(_DATA_KEY))
        return decode(text, self._clock.now_ms())


class Keeper:
    """Saves a watch's decisions to a store.

    Args:
        watch: whose decisions.
        store: that keeps them.
        clock: times the waits.
    """

    def __init__(self, watch: TriggerWatch, store: HeldStore, clock: Clock) -> None:
        self.fault: str | None = None
        """Why decisions are not kept now; None while they are."""
        self._watch = watch
        self._store = store
        self._clock = clock
        self._urgent = asyncio.Event()
        self._written: Mapping[Key, HeldTrigger] = {}

    def hurry(self) -> None:
        """Save at once: a workload has to scale up from zero, or may scale to zero."""
        self._urgent.set()

    async def restore(self) -> None:
        """Load the saved decisions; if they can't be read, the watch starts without them."""
        try:
            self._watch.seed(await self._store.read())
        except GpuscaleError as error:
            self._note(error)

    async def run(self) -> None:
        """Save changed decisions until cancelled."""
        while True:
            try:
                async with asyncio.timeout(WRITE_S):
                    await self._urgent.wait()
            except TimeoutError:
                pass
            self._urgent.clear()
            await self.keep()
            await self._clock.sleep(0.5)

    async def keep(self) -> None:
        """Save the decisions if they changed."""
        held = self._watch.held()
        if not _says_more(held, self._written):
            return
        try:
            await self._store.write(held)
        except GpuscaleError as error:
            self._note(error)
            return
        self._written, self.fault = held, None

    def _note(self, error: GpuscaleError) -> None:
        if self.fault is None:
            _LOG.warning("decisions of triggers are not kept: %s", error)
        self.fault = str(error)


def _asked_for(decision: TriggerDecision) -> tuple[object, ...]:
    """Return the parts of a decision whose change is worth a write: activity, pods, waking, target."""
    pods = ceil(decision.value / decision.target - 1e-9)
    return decision.is_active, pods, decision.waking, decision.target


def _says_more(held: Mapping[Key, HeldTrigger], known: Mapping[Key, HeldTrigger]) -> bool:
    """Return whether a decision changed, or is newer by more than a minute."""
    for key, each in held.items():
        other = known.get(key)
        if other is None:
            return True
        new, old = each.decision, other.decision
        is_newer = new.measured_ms > old.measured_ms
        is_other = _asked_for(new) != _asked_for(old)
        if is_newer and (is_other or new.measured_ms - old.measured_ms > _RENEW_MS):
            return True
        if (each.away_s is None) != (other.away_s is None) and not is_newer and each.away_s:
            return True
    return False
