"""Prometheus' view of the agents, read through the API server or at its own address."""

import asyncio
import json
import re
from collections.abc import Mapping
from typing import Any

from yarl import URL

from gpuscale.base.errors import GpuscaleError, UnavailableError, UpstreamError
from gpuscale.kube.client import ApiStatusError, KubeClient
from gpuscale.ops.doctor import facts
from gpuscale.ops.doctor.checks.prometheus import service_in
from gpuscale.ops.doctor.direct import (
    SERVICES,
    AnsweredError,
    fetch,
    missing_right,
    service_path,
)
from gpuscale.ops.doctor.facts import UTILIZATION
from gpuscale.ops.doctor.snapshot import PrometheusLook, Row, Snapshot
from gpuscale.server.sources.http import SourceAccess

_PATH, _RANGE_PATH = "/api/v1/query", "/api/v1/query_range"
Line = tuple[dict[str, str], list[tuple[float, float]]]
"""Labels, and points of seconds since 1970 and a value."""
_LIMIT_S = 15.0
_REFUSALS = (401, 403)
URL_USER = re.compile("//[^/@]*@")
"""User and password, which no report may show."""
_TARGETS = "up"
_NAMES = 'count by (__name__) ({__name__=~"DCGM_.+"})'
_MALFORMED = (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError)


class PrometheusReader:
    """Reads scrape targets and GPU series from Prometheus.

    Args:
        connection: to the API server, which passes requests on to Services.
        url: where it is asked directly; None uses the address of the metrics server.
        access: what requests to that address carry.
    """

    def __init__(
        self, connection: KubeClient, url: str | None, access: SourceAccess | None = None
    ) -> None:
        self._connection = connection
        self._url = url
        self._access = access

    async def read(self, seen: Snapshot, now_ms: int) -> PrometheusLook:
        """Return Prometheus' answers, or why there are none."""
        address, unasked = (self._url, "") if self._url else configured(seen)
        if not address or unasked:
            return PrometheusLook(address or "", unasked=unasked)
        try:
            async with asyncio.timeout(_LIMIT_S):
                return PrometheusLook(
                    address,
                    targets=await self._rows(address, _TARGETS),
                    names=await self._rows(address, _NAMES),
                    usage=await self._usage(address, now_ms),
                )
        except TimeoutError:
            return PrometheusLook(address, fault=f"no answer within {_LIMIT_S:g} s")
        except GpuscaleError as error:
            needs = missing_right(error, SERVICES)
            refused = 0 if needs else _refusal(error)
            # The API server's message would blame the kubeconfig.
            fault = f"Prometheus answered {refused}" if refused else str(error)
            return PrometheusLook(address, fault=fault, needs=needs, refused=refused)

    async def rows(self, seen: Snapshot, query: str) -> list[Row]:
        """Return the rows of an instant query.

        Raises:
            GpuscaleError: no Prometheus is known, it may not be asked, or it gives no answer.
        """
        address, unasked = (self._url, "") if self._url else configured(seen)
        if not address or unasked:
            raise UnavailableError(unasked or "no metrics server names a Prometheus")
        try:
            async with asyncio.timeout(_LIMIT_S):
                return await self._rows(address, query)
        except TimeoutError:
            raise UnavailableError(f"{address} gave no answer within {_LIMIT_S:g} s") from None

    async def _usage(self, address: str, now_ms: int) -> list[Row]:
        """Return the utilization series with their samples' age in seconds."""
        rows = await self._rows(address, f"timestamp({UTILIZATION})")
        return [(labels, now_ms / 1000 - value) for labels, value in rows]

    async def _rows(self, address: str, query: str) -> list[Row]:
        answer = await self._ask(address, {"query": query})
        try:
            return [
                (dict(row["metric"]), float(row["value"][1])) for row in answer["data"]["result"]
            ]
        except _MALFORMED as error:
            raise UpstreamError(f"{address} answered {query} with no vector") from error

    async def matrix(self, query: str, begin_s: int, end_s: int, step_s: int) -> list[Line]:
        """Return the lines of a range query to the address that was given.

        Raises:
            GpuscaleError: it gives no answer.
        """
        address = self._url or ""
        params = {"query": query, "start": str(begin_s), "end": str(end_s), "step": str(step_s)}
        answer = await self._ask(address, params, _RANGE_PATH)
        try:
            return [
                (dict(row["metric"]), [(float(at), float(value)) for at, value in row["values"]])
                for row in answer["data"]["result"]
            ]
        except _MALFORMED as error:
            raise UpstreamError(f"{address} answered {query} with no matrix") from error

    async def _ask(
        self, address: str, params: Mapping[str, str], path: str = _PATH
    ) -> Mapping[str, Any]:
        service = service_in(address)
        if self._url is None and service is not None:
            return await self._connection.get(service_path(URL(address), *service, path), params)
        try:
            found = json.loads(await fetch(address, path, params, self._access))
        except (ValueError, RecursionError) as error:
            raise UpstreamError(f"{address} answered with no JSON") from error
        return found if isinstance(found, dict) else {}


def _refusal(error: GpuscaleError) -> int:
    """Return the 401 or 403 with which Prometheus refused a request; 0 if it did not."""
    code = error.code if isinstance(error, ApiStatusError | AnsweredError) else 0
    return code if code in _REFUSALS else 0


def configured(seen: Snapshot) -> tuple[str, str]:
    """Return the address that a metrics server has, and why it can't be asked; both empty if none has one."""
    services = {(facts.namespace(each), facts.name(each)) for each in seen.all("services")}
    why, outside = "", ""
    for body, _, flags in facts.metrics_servers(seen):
        given = flags.get("--prometheus-url", "")
        if not given:
            continue
        address = _full(given, facts.namespace(body))
        found = service_in(address)
        if found is not None and found[:2] in services:
            return address, ""
        outside = URL_USER.sub("//", given)
        why = f"{facts.full_name(body)} uses {outside}, which is no Service of this cluster"
    return outside, why


def _full(address: str, namespace: str) -> str:
    """Return an address with the namespace added to a Service's short name."""
    try:
        url = URL(address)
        host = url.host or ""
        is_short = host != "" and "." not in host
        return str(url.with_host(f"{host}.{namespace}.svc")) if is_short else address
    except ValueError:
        return address
