"""A federation member: another metrics API, requested within limits on time, bytes and concurrency."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import aiohttp
from yarl import URL

from gpuscale.base.errors import GpuscaleError
from gpuscale.base.unreachable import reason_of
from gpuscale.kube.client import SERVICE_ACCOUNT
from gpuscale.server.metricsapi.federation.answers import (
    NotOfTheApiError,
    parsed,
    resources_of,
    status_of_answer,
    unavailable,
    values_of,
)
from gpuscale.server.metricsapi.federation.circuit import Circuit
from gpuscale.server.metricsapi.federation.settings import MemberSettings
from gpuscale.server.metricsapi.telemetry.histograms import Histogram
from gpuscale.server.metricsapi.wire.bodies import Body
from gpuscale.server.metricsapi.wire.paths import CustomTarget, ExternalTarget, path_of, versions_of
from gpuscale.server.metricsapi.wire.requests import RequestError
from gpuscale.server.sources.http.access import SecretFile, SourceAccess, tls_to
from gpuscale.server.sources.http.session import HttpSession

MAX_AT_ONCE = 64
"""Requests that are passed on to one member at a time."""
MAX_BODY_BYTES = 8 * 1024 * 1024
_LOG = logging.getLogger(__name__)
_LIST_EVERY_S, _LIST_SOON_S = 30.0, 2.0
"""Between two looks at what a member lists: while it is up, and while it is not."""
_HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity"}
_FAULTS = (aiohttp.ClientError, OSError, TimeoutError, ValueError, GpuscaleError)


@dataclass(slots=True)
class Passed:
    """A member's answer to a forwarded request."""

    body: Body
    values: int
    seconds: float


@dataclass(slots=True)
class MemberCounts:
    """Counts of the requests to one member, by result."""

    results: Counter[str] = field(default_factory=Counter)
    """By `ok`, the member's own `refused`, `failed`, and `not asked`."""
    durations: Histogram = field(default_factory=Histogram)
    in_flight: int = 0


class Member:
    """Requests to one other metrics API.

    Args:
        settings: how it is reached.

    Raises:
        UsageError: a certificate that can't be used.
    """

    def __init__(self, settings: MemberSettings) -> None:
        self.settings = settings
        self.name = settings.name
        self.circuit = Circuit()
        self.counts = MemberCounts()
        self.lists: dict[tuple[str, str], list[Body]] = {}
        """The resources that it last listed, by group and version."""
        self.list_faults: dict[tuple[str, str], str] = {}
        """Why the latest list of a group and version is not known."""
        self.listed_s: float | None = None
        """When it last answered with a list; monotonic."""
        self._http = HttpSession(
            timeout_s=settings.timeout_s,
            max_response_bytes=MAX_BODY_BYTES,
            access=_access(settings),
            max_connections=MAX_AT_ONCE + 1,
        )

    async def close(self) -> None:
        await self._http.close()

    async def run(self) -> None:
        """Refresh the member's discovery lists, which also shows whether it is up."""
        while True:
            is_well = await self.look()
            await asyncio.sleep(_LIST_EVERY_S if is_well else _LIST_SOON_S)

    async def look(self) -> bool:
        """Fetch the member's discovery lists; return whether all were answered."""
        for group in self.settings.groups:
            for version in versions_of(group):
                await self._look_at(group, version)
        return not self.list_faults and not self.circuit.is_open

    async def values(
        self, group_version: str, query: Mapping[str, str], target: CustomTarget | ExternalTarget
    ) -> Passed:
        """Return the member's values of a metric.

        Args:
            group_version: of the API that is asked.
            query: the parameters that go on.
            target: the requested metric.

        Raises:
            RequestError: with the answer to give instead, which names the member.
        """
        counts, now_s = self.counts, time.monotonic()
        if counts.in_flight >= MAX_AT_ONCE:
            raise self._not_asked(f"{MAX_AT_ONCE} requests to it are on their way")
        if not self.circuit.admits(now_s):
            raise self._not_asked(
                f"it does not answer since {now_s - (self.circuit.since_s or now_s):.0f} s: "
                f"{self.circuit.reason}"
            )
        counts.in_flight += 1
        try:
            found = await self._ask(group_version, query, target)
        except _FAULTS as error:
            reason = self._reason(error)
            self.circuit.failed(time.monotonic(), reason)
            counts.results["failed"] += 1
            raise RequestError(
                unavailable(f"the metrics API {self.name} gave no answer: {reason}")
            ) from error
        except RequestError:
            counts.results["refused"] += 1
            self._up()
            raise
        finally:
            counts.in_flight -= 1
            counts.durations.add(time.monotonic() - now_s)
            self.circuit.gave_up()
        counts.results["ok"] += 1
        self._up()
        return found

    def remark(self) -> str:
        """Return a sentence about the member for the health paths."""
        now_s, circuit = time.monotonic(), self.circuit
        if circuit.since_s is not None:
            return f"down since {now_s - circuit.since_s:.0f} s: {circuit.reason}; our own metrics go on"
        faults = [
            f"its list of {group}/{version} is not known: {fault}"
            for (group, version), fault in self.list_faults.items()
        ]
        if faults:
            return "; ".join(faults)
        listed = sum(map(len, self.lists.values()))
        return "" if self.listed_s is None else f"it lists {listed} resources"

    def missing(self) -> str:
        """Return why the member's list may be old or absent; empty if it is current."""
        return f"{self.name}: {self.remark()}" if self.circuit.is_open or self.list_faults else ""

    async def _ask(
        self, group_version: str, query: Mapping[str, str], target: CustomTarget | ExternalTarget
    ) -> Passed:
        began_s = time.monotonic()
        code, answer = await self._fetch(f"/apis/{group_version}/{path_of(target)}", query)
        if code != 200:
            raise RequestError(status_of_answer(self.name, code, answer))
        body, count = values_of(group_version, target, answer)
        return Passed(body, count, time.monotonic() - began_s)

    async def _look_at(self, group: str, version: str) -> None:
        key = group, version
        if self.circuit.is_open and not self.circuit.admits(time.monotonic()):
            return
        try:
            code, answer = await self._fetch(f"/apis/{group}/{version}", {})
            # A member without this version, such as one from before v1beta2, has no such list.
            self.lists[key] = [] if code == 404 else resources_of(f"{group}/{version}", answer)
        except _FAULTS as error:
            reason = self._reason(error)
            self.circuit.failed(time.monotonic(), reason)
            if self.list_faults.get(key) != reason:
                _LOG.warning("the list of %s of %s is kept as it was: %s", group, self.name, reason)
            self.list_faults[key] = reason
            return
        finally:
            self.circuit.gave_up()
        self.list_faults.pop(key, None)
        self.listed_s = time.monotonic()
        self._up()

    async def _fetch(self, path: str, query: Mapping[str, str]) -> tuple[int, Mapping[str, object]]:
        """Return an answer's status code and JSON object; see `parsed` and `HttpSession.fetch` for errors."""
        url = URL(self.settings.url + path, encoded=True).with_query(query)
        name = self.settings.server_name
        async with (
            asyncio.timeout(self.settings.timeout_s),
            self._http.stream("GET", url, headers=_HEADERS, server_hostname=name) as response,
        ):
            if 300 <= response.status < 400:
                raise NotOfTheApiError("found a redirect, which is not followed")
            if response.headers.get("Content-Encoding", "identity") != "identity":
                raise NotOfTheApiError("found a compressed answer, which was not asked for")
            body = await self._http.body(response, MAX_BODY_BYTES)
            return response.status, parsed(response.headers.get("Content-Type", ""), body)

    def _up(self) -> None:
        if self.circuit.is_open:
            _LOG.info("the metrics API %s answers again", self.name)
        self.circuit.answered()

    def _not_asked(self, reason: str) -> RequestError:
        self.counts.results["not asked"] += 1
        return RequestError(unavailable(f"the metrics API {self.name} was not asked: {reason}"))

    def _reason(self, error: BaseException) -> str:
        if isinstance(error, TimeoutError):
            return f"nothing whole within {self.settings.timeout_s:g} s"
        return reason_of(error)[:300]


def _access(settings: MemberSettings) -> SourceAccess:
    """Return the credentials for a member: those in its settings, or the pod's service account."""
    token_file = settings.token_file
    own = SERVICE_ACCOUNT / "token"
    if token_file is None and settings.client_files is None and own.exists():
        token_file = own
    return SourceAccess(
        token=None if token_file is None else SecretFile(token_file),
        tls=tls_to(
            f"the metrics API {settings.name}",
            settings.ca_file,
            settings.client_files,
            verifies=not settings.insecure,
        ),
    )
