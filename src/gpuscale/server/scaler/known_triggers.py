"""Triggers parsed from ScaledObject metadata, and cached."""

import hashlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from typing import Literal

from gpuscale.base.byte_cache import ByteCache, deep_bytes
from gpuscale.base.errors import GpuscaleError
from gpuscale.base.golang.durations import parse_duration_ms
from gpuscale.base.words import counted
from gpuscale.server.scaler.proto import externalscaler_pb2 as pb
from gpuscale.triggers import Trigger

POLLING_KEY = "pollingInterval"
"""The one key that says something of KEDA and not of the trigger."""
DEFAULT_POLLING_S = 30.0
"""Of a ScaledObject that gives no pollingInterval."""
_MOST_METADATA_BYTES = 64 * 1024
_MOST_BYTES = 8 * 1024 * 1024
_LONGEST_POLLING_S = 86_400.0
_FORGOTTEN_AFTER_S = 600.0

Code = Literal[
    "DEADLINE_EXCEEDED", "INVALID_ARGUMENT", "NOT_FOUND", "RESOURCE_EXHAUSTED", "UNAVAILABLE"
]
"""Of gRPC."""
ReadTrigger = Callable[[Mapping[str, str], str], Trigger]
"""Returns the trigger of metadata in a namespace; its errors name every fault."""


class RefusedError(GpuscaleError):
    """A call is refused with a gRPC status.

    Args:
        code: of gRPC.
        reason: for the log of who asked.
    """

    def __init__(self, code: Code, reason: str) -> None:
        super().__init__(reason)
        self.code: Code = code


class KnownTriggers:
    """Parses trigger metadata, and caches the results.

    Args:
        read: makes a trigger of metadata.
    """

    def __init__(self, read: ReadTrigger) -> None:
        self._read = read
        self._cache: ByteCache[bytes, Trigger | str] = ByteCache("trigger metadata", _MOST_BYTES)

    def __len__(self) -> int:
        return len(self._cache)

    def trigger(self, ref: pb.ScaledObjectRef) -> Trigger:
        """Return the trigger of a call.

        Raises:
            RefusedError: the metadata is wrong; it names every fault.
        """
        items = sorted(ref.scalerMetadata.items())
        size = sum(len(key) + len(value) for key, value in items)
        if size > _MOST_METADATA_BYTES:
            raise RefusedError(
                "INVALID_ARGUMENT",
                f"found metadata of {size} characters, expected at most {_MOST_METADATA_BYTES}",
            )
        # A digest of the relevant keys, so that irrelevant differences don't fill the cache.
        key = hashlib.blake2b(repr((ref.namespace, items)).encode(), digest_size=16).digest()
        found = self._cache.get(key)
        if found is None:
            found = self._made(ref)
            self._cache.put(key, found, deep_bytes(found))
        if isinstance(found, str):
            raise RefusedError("INVALID_ARGUMENT", found)
        return found

    def _made(self, ref: pb.ScaledObjectRef) -> Trigger | str:
        metadata = {key: text for key, text in ref.scalerMetadata.items() if key != POLLING_KEY}
        faults = []
        try:
            polling_s(ref)
        except RefusedError as error:
            faults.append(str(error))
        if not ref.namespace:
            faults.append("namespace: found none, expected that of the ScaledObject")
        try:
            trigger = self._read(metadata, ref.namespace)
        except GpuscaleError as error:
            faults.insert(0, str(error))
        else:
            if not faults:
                return trigger
        return "\n".join(faults)


def polling_s(ref: pb.ScaledObjectRef) -> float:
    """Return the polling interval that the metadata states, in seconds.

    Raises:
        RefusedError: it is no time.
    """
    text = ref.scalerMetadata.get(POLLING_KEY)
    if text is None:
        return DEFAULT_POLLING_S
    try:
        seconds = float(text) if text.isdecimal() else parse_duration_ms(text) / 1000
    except ValueError:
        seconds = 0.0
    if not 1.0 <= seconds <= _LONGEST_POLLING_S:
        raise RefusedError(
            "INVALID_ARGUMENT",
            f"{POLLING_KEY}: found {text[:40]!r}, expected seconds such as 30, from 1 to 86400",
        )
    return seconds


class WatchedTriggers:
    """Limits how many triggers each client address can have watched, so that none takes all the room.

    Args:
        most: of all addresses together.
        most_of_address: of one address.
    """

    def __init__(self, most: int, most_of_address: int) -> None:
        self._most = most
        self._most_of_address = most_of_address
        self._used: OrderedDict[Trigger, tuple[str, float]] = OrderedDict()
        self._by_address: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._used)

    def use(self, trigger: Trigger, address: str, now_s: float) -> None:
        """Count a trigger for an address.

        Args:
            trigger: that is watched from now on, if it was not.
            address: of the client; the first one to ask for a trigger has it on its account.
            now_s: monotonic.

        Raises:
            RefusedError: there are as many as there may be, of the address or in all.
        """
        known = self._used.get(trigger)
        if known is not None:
            self._used[trigger] = (known[0], now_s)
            self._used.move_to_end(trigger)
            return
        self._forget(now_s)
        if self._by_address[address] >= self._most_of_address:
            raise RefusedError(
                "RESOURCE_EXHAUSTED",
                f"{counted(self._most_of_address, 'trigger')} of {address} are watched already; "
                "see --max-triggers-per-address",
            )
        if len(self._used) >= self._most:
            raise RefusedError(
                "RESOURCE_EXHAUSTED",
                f"{counted(self._most, 'trigger')} are watched already; see --max-triggers",
            )
        self._used[trigger] = (address, now_s)
        self._by_address[address] += 1

    def _forget(self, now_s: float) -> None:
        while self._used:
            trigger, (address, used_s) = next(iter(self._used.items()))
            if now_s - used_s < _FORGOTTEN_AFTER_S:
                return
            del self._used[trigger]
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]
