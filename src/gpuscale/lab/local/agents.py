"""The live loop's node agents: one real exporter with its own port for each simulated node."""

from gpuscale.agent.exporter import NodeAgent
from gpuscale.agent.formats import FamilyOptions, Style
from gpuscale.agent.gpu import CallStats, GpuIdentity, GpuReading
from gpuscale.base.clock import Clock
from gpuscale.lab.local.present import Present
from gpuscale.server.page import own_host, url_host

AGENT_DOWN = "the node agent is down"


class PresentReader:
    """Reads a node's GPUs, after advancing the simulation to the present.

    Bringing it up to now may take the very node away; there is nothing to read then, until its agent stops.
    """

    def __init__(self, present: Present, node: str) -> None:
        self._present = present
        self._node = node

    def gpus(self) -> tuple[GpuIdentity, ...]:
        reader = self._present.world.gpus.readers.get(self._node)
        return () if reader is None else reader.gpus()

    def stats(self) -> tuple[CallStats, ...]:
        """Return nothing: simulated GPUs have no library behind them."""
        return ()

    def close(self) -> None:
        """Do nothing: the simulated GPUs outlive their reader."""

    def read(self, now_ms: int) -> tuple[GpuReading, ...]:
        self._present.catch_up()
        self._present.world.advance_load(now_ms)
        reader = self._present.world.gpus.readers.get(self._node)
        return () if reader is None else reader.read(now_ms)


class NodeAgents:
    """Starts an agent when a node joins and stops it when the node leaves."""

    def __init__(self, present: Present, clock: Clock, host: str) -> None:
        self.ports: dict[str, int] = {}
        """Node name to the port of its agent."""
        self._present = present
        self._clock = clock
        self._host = host
        self._agents: dict[str, NodeAgent] = {}
        self.killed: set[str] = set()
        """Nodes whose agent runs no more, and leaves its port to nobody."""

    async def kill(self, node: str) -> None:
        """End a node's agent; whoever scrapes it finds its port closed."""
        await self._agents[node].stop()
        self.killed.add(node)

    async def revive(self, node: str) -> None:
        """Start a killed agent again, at the port that it had.

        Raises:
            UnavailableError: another program has the port by now.
        """
        await self._start(node, self.ports[node])
        self.killed.discard(node)

    def url(self, node: str) -> str:
        return f"http://{url_host(own_host(self._host))}:{self.ports[node]}/metrics"

    def url_of(self, node: str) -> str | None:
        """Return the metrics page of a node's agent; None where none runs."""
        return self.url(node) if node in self.ports else None

    async def follow_nodes(self) -> None:
        """Start and stop agents so that each current node has exactly one."""
        nodes = self._present.world.gpus.readers.keys()
        for node in self._agents.keys() - nodes:
            await self._stop(node)
        for node in sorted(nodes - self._agents.keys()):
            await self._start(node)

    async def stop(self) -> None:
        for node in tuple(self._agents):
            await self._stop(node)

    async def _start(self, node: str, port: int = 0) -> None:
        world = self._present.world
        pipeline = world.setup.pipeline
        style: Style = pipeline.style
        agent = NodeAgent(
            PresentReader(self._present, node),
            lambda _: world.gpus.attribution(node),
            world.setup.counters,
            FamilyOptions(hostname=node, node_pool=world.cloud.pool_of(node).pool.name),
            self._clock,
            pipeline.collect_interval / 1000,
            frozenset({style}),
            reader_blocks=False,
        )
        self.ports[node] = await agent.start(self._host, port)
        self._agents[node] = agent

    async def _stop(self, node: str) -> None:
        del self.ports[node]
        self.killed.discard(node)
        await self._agents.pop(node).stop()
