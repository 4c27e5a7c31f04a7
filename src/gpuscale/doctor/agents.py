"""What the agents answer, by way of the API server or at an address of their own."""

from collections.abc import Mapping

from gpuscale.core.errors import GpuscaleError
from gpuscale.doctor import facts
from gpuscale.doctor.direct import PODS, at_once, fetch, missing_right, pod_path
from gpuscale.doctor.snapshot import AgentLook, Snapshot
from gpuscale.exposition.parse import parse_text
from gpuscale.install.parts import agent
from gpuscale.kube.client.client import KubeClient
from gpuscale.objects.fields import Fields

_PATH = "/metrics"


class AgentReader:
    """Reads the metrics of every agent that is ready.

    Args:
        connection: to the API server, which passes requests on to pods.
        urls: of agents that are asked directly, by node.
    """

    def __init__(self, connection: KubeClient, urls: Mapping[str, str]) -> None:
        self._connection = connection
        self._urls = urls

    async def read(self, seen: Snapshot) -> tuple[AgentLook, ...]:
        """Return what each answers; why, where one does not."""
        nodes = {facts.name(node) for node in seen.all("nodes")}
        pods = [
            pod
            for pod in facts.agent_pods(seen)
            if facts.is_ready(pod)
            and (seen.hides("nodes") or pod.child("spec").text("nodeName") in nodes)
        ]
        return await at_once(self._look(pod) for pod in pods)

    async def _look(self, pod: Fields) -> AgentLook:
        node, name = pod.child("spec").text("nodeName"), facts.full_name(pod)
        port = _port(pod)
        try:
            text = await self._text(pod, node, port)
            families = {family.name: family for family in parse_text(text, source=name)}
        except GpuscaleError as error:
            needs = missing_right(error, PODS)
            return AgentLook(node, name, fault=str(error), needs=needs, port=port)
        return AgentLook(node, name, families, port=port)

    async def _text(self, pod: Fields, node: str, port: int) -> str:
        if node in self._urls:
            return await fetch(self._urls[node], _PATH)
        path = pod_path(facts.namespace(pod), facts.name(pod), port, _PATH)
        return await self._connection.text(path)


def _port(pod: Fields) -> int:
    for container in pod.child("spec").items("containers"):
        for port in container.items("ports"):
            if port.text("name") == "metrics":
                return port.integer("containerPort") or agent.PORT
    return agent.PORT
