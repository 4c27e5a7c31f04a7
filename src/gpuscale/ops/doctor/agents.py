"""The node agents' metrics pages, read through the API server or at the agents' own addresses."""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass

from gpuscale.base.errors import GpuscaleError, UnavailableError
from gpuscale.base.exposition.families import Family
from gpuscale.base.exposition.parse import parse_text
from gpuscale.base.objects.fields import Fields
from gpuscale.base.unreachable import distrust_of
from gpuscale.kube.client import KubeClient
from gpuscale.ops.doctor import facts
from gpuscale.ops.doctor.direct import (
    PODS,
    AnsweredError,
    at_once,
    fetch,
    missing_right,
    pod_path,
)
from gpuscale.ops.doctor.snapshot import AgentLook, Snapshot
from gpuscale.ops.install.common import AGENT_PORT
from gpuscale.server.sources.feeds import agent_fault
from gpuscale.server.sources.http import SourceAccess

_PATH = "/metrics"
_READY = "/readyz?verbose"
_MOST = 200
"""Agents that are asked; reading one takes milliseconds, and on a large cluster they differ by pool."""
_ONE_S = 5.0
_YOUNG_S = 30.0
_GOOD = re.compile(r"last good ([0-9.]+) s ago")
_OWN = "gpuscale_exporter_"
_UNAUTHORIZED = 401
_LOCKED = "it asks for a password, which the API server does not pass on"


@dataclass(frozen=True, slots=True)
class Agents:
    """The agents' answers."""

    looks: tuple[AgentLook, ...]
    passed_over: int
    """Those that were not asked."""


class AgentReader:
    """Reads the metrics page of every ready agent.

    Args:
        connection: to the API server, which passes requests on to pods.
        urls: of agents that are asked directly, by node.
        access: what requests to these carry, and whom they trust.
        most: how many are asked.
    """

    def __init__(
        self,
        connection: KubeClient,
        urls: Mapping[str, str],
        access: SourceAccess | None = None,
        most: int = _MOST,
    ) -> None:
        self._most = most
        self._connection = connection
        self._urls = urls
        self._access = access

    async def read(self, seen: Snapshot) -> Agents:
        """Return what each answers; why, where one does not. Of very many, each n-th is asked."""
        nodes = facts.nodes_by_name(seen)
        pods = [
            pod
            for pod in facts.agent_pods(seen)
            if facts.is_ready(pod)
            and (seen.hides("nodes") or pod.child("spec").text("nodeName") in nodes)
        ]
        asked = pods[:: -(-len(pods) // self._most) or 1]
        looks = await at_once(self._look(pod, seen.now_ms / 1000) for pod in asked)
        return Agents(looks, len(pods) - len(asked))

    async def _look(self, pod: Fields, now_s: float) -> AgentLook:
        node, name = pod.child("spec").text("nodeName"), facts.full_name(pod)
        port, has_tls = _port(pod), _has_tls(pod)
        if node not in self._urls and _wants_password(pod):
            return AgentLook(node, name, fault=_LOCKED, is_locked=True, has_tls=has_tls, port=port)
        try:
            text = await self._text(pod, node, port, _PATH)
            families = {family.name: family for family in parse_text(text, source=name)}
        except GpuscaleError as error:
            return AgentLook(
                node,
                name,
                fault=str(error),
                needs=missing_right(error, PODS),
                is_locked=isinstance(error, AnsweredError) and error.code == _UNAUTHORIZED,
                has_tls=has_tls,
                port=port,
            )
        page = await self._page(pod, node, port) if _is_ill(families, now_s) else ""
        said = "; ".join(line for line in page.splitlines() if line.startswith("[-]"))
        ago = _GOOD.search(page)
        good_ago_s = None if ago is None else float(ago[1])
        return AgentLook(node, name, families, port=port, said=said, good_ago_s=good_ago_s)

    async def _page(self, pod: Fields, node: str, port: int) -> str:
        """Return the agent's /readyz page, or the error in its place."""
        try:
            return await self._text(pod, node, port, _READY)
        except GpuscaleError as error:
            return str(error)

    async def _direct(self, url: str, path: str) -> str:
        try:
            return await fetch(url, path, access=self._access)
        except UnavailableError as error:
            if distrust_of(error) is not None:
                raise UnavailableError(f"{url}: {agent_fault(error)}") from error
            raise

    async def _text(self, pod: Fields, node: str, port: int, path: str) -> str:
        try:
            async with asyncio.timeout(_ONE_S):
                if node in self._urls:
                    return await self._direct(self._urls[node], path)
                namespace, name = facts.namespace(pod), facts.name(pod)
                place = pod_path(namespace, name, port, path, has_tls=_has_tls(pod))
                return await self._connection.text(place)
        except TimeoutError:
            raise UnavailableError(
                f"the agent on node {node} gave no answer within {_ONE_S:g} s"
            ) from None


def _is_ill(families: Mapping[str, Family], now_s: float) -> bool:
    wells = (families.get(f"{_OWN}{each}_up") for each in ("collect", "attribution"))
    newest = families.get(f"{_OWN}newest_reading_timestamp_seconds")
    return any(sample.value == 0 for family in wells if family for sample in family.samples) or any(
        abs(now_s - sample.value) > _YOUNG_S for sample in (newest.samples if newest else ())
    )


def _has_tls(pod: Fields) -> bool:
    """Return whether an agent serves over TLS, which its pod's probes show."""
    return any(
        container.child(probe).child("httpGet").text("scheme") == "HTTPS"
        for container in pod.child("spec").items("containers")
        for probe in ("readinessProbe", "livenessProbe")
    )


def _wants_password(pod: Fields) -> bool:
    """Return whether a gpuscale agent needs a password, which API servers don't forward."""
    return any(
        argument.startswith("--web-users-folder")
        for container in pod.child("spec").items("containers")
        for argument in container.texts("args")
    )


def _port(pod: Fields) -> int:
    for container in pod.child("spec").items("containers"):
        for port in container.items("ports"):
            if port.text("name") == "metrics":
                return port.integer("containerPort") or AGENT_PORT
    return AGENT_PORT
