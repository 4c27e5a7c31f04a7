"""Faults of a live run that its viewers cause: each happens to the part itself, and the loop finds out."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from gpuscale.base.errors import UnavailableError
from gpuscale.lab.local.runner import Runner
from gpuscale.lab.sim.world import World


class FaultKind(StrEnum):
    """A part that can fail."""

    AGENT = "agent"
    GPU = "gpu"
    NODE = "node"
    PROMETHEUS = "prometheus"


_EXAMPLE = '{"kind": "gpu", "node": "NAME", "gpu": 0, "broken": true}'


@dataclass(frozen=True, slots=True)
class _Part:
    kind: FaultKind
    node: str = ""
    gpu: int | None = None


class LiveFaults:
    """Breaks parts of a run, and mends them.

    A node isn't mended: its machine is gone, and the node autoscaler brings another.

    Args:
        world: of the run.
        runner: its agents, and its Prometheus.
    """

    def __init__(self, world: World, runner: Runner) -> None:
        self._world = world
        self._runner = runner
        self._broken: dict[_Part, int] = {}
        """To when it broke."""

    def broken(self) -> list[dict[str, object]]:
        """Return what is broken now, the first first: `kind`, `node`, `gpu`, and `since` in seconds."""
        self._broken = {
            part: since_ms
            for part, since_ms in self._broken.items()
            if not part.node or part.node in self._world.cluster.nodes
        }
        return [
            {
                "kind": part.kind.value,
                "node": part.node,
                "gpu": part.gpu,
                "since": self._world.seconds(since_ms),
            }
            for part, since_ms in self._broken.items()
        ]

    async def order(self, asked: Mapping[str, object]) -> None:
        """Break or mend a part; to break what is broken changes nothing.

        Raises:
            ValueError: there is no such part, or it can't be mended.
        """
        now_ms = self._runner.present.catch_up()
        part, breaks = self._part(asked), asked.get("broken")
        if not isinstance(breaks, bool):
            raise ValueError(f"broken: expected true or false, as in {_EXAMPLE}")
        if breaks == (part in self._broken):
            return
        match part.kind:
            case FaultKind.NODE if not breaks:
                raise ValueError("a node that is gone doesn't come back; another one does")
            case FaultKind.NODE:
                self._world.lose_node(part.node)
            case FaultKind.PROMETHEUS:
                self._runner.source.is_stopped = breaks
            case FaultKind.AGENT if breaks:
                await self._runner.agents.kill(part.node)
            case FaultKind.AGENT:
                try:
                    await self._runner.agents.revive(part.node)
                except UnavailableError as error:
                    raise ValueError(str(error)) from None
            case FaultKind.GPU:
                change = self._world.lose_gpu if breaks else self._world.mend_gpu
                change(part.node, part.gpu or 0)
        if not breaks:
            self._broken.pop(part, None)
        elif part.kind is not FaultKind.NODE:
            self._broken[part] = now_ms
        self._runner.present.catch_up()

    def _part(self, asked: Mapping[str, object]) -> _Part:
        kinds = [kind.value for kind in FaultKind]
        if asked.get("kind") not in kinds:
            raise ValueError(f"kind: expected one of {', '.join(kinds)}, as in {_EXAMPLE}")
        kind, node, gpu = FaultKind(str(asked["kind"])), asked.get("node"), asked.get("gpu")
        if kind is FaultKind.PROMETHEUS:
            return _Part(kind)
        reader = self._world.gpus.readers.get(node) if isinstance(node, str) else None
        if not isinstance(node, str) or reader is None or node not in self._runner.agents.ports:
            known = ", ".join(self._world.gpus.readers) or "none"
            raise ValueError(f"node: found {str(node)[:80]}, expected one of: {known}")
        if kind is not FaultKind.GPU:
            return _Part(kind, node)
        count = len(reader.gpus())
        if isinstance(gpu, bool) or not isinstance(gpu, int) or not 0 <= gpu < count:
            raise ValueError(f"gpu: found {str(gpu)[:30]}, expected an index below {count}")
        if self._world.cloud.starts(node):
            raise ValueError(f"the GPUs of {node} are still starting")
        return _Part(kind, node, gpu)
