"""A scenario in virtual time, from its first second to its last."""

from collections.abc import Callable
from dataclasses import replace

from gpuscale.cluster.nodes.policy import NodePolicyFactory
from gpuscale.hpa.policy import ReplicaPolicyFactory
from gpuscale.sim.autoscaler import HpaController
from gpuscale.sim.document.document import document, row
from gpuscale.sim.document.timeline import Recorder
from gpuscale.sim.engine import Stage
from gpuscale.sim.pipeline import VirtualPipeline, needs_of
from gpuscale.sim.scenario.setup import Setup
from gpuscale.sim.world import World

START_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z: virtual time needs some date, and the same one always."""


def simulate(
    setup: Setup,
    progress: Callable[[float], None] | None = None,
    *,
    replica_policy: ReplicaPolicyFactory | None = None,
    node_policy: NodePolicyFactory | None = None,
) -> dict[str, object]:
    """Return the document of the whole run; the same setup gives the same bytes.

    Args:
        setup: what to run.
        progress: called with the share done, 0 to 1, a hundred times.
        replica_policy: makes the policy of each HPA; None takes the scenario's.
        node_policy: makes the policy of the node pools; None takes the scenario's.
    """
    setup = replace(
        setup,
        replica_policy=replica_policy or setup.replica_policy,
        node_policy=node_policy or setup.node_policy,
    )
    world = World(setup, START_MS, needs_of(setup).fields(setup.counters))
    controller = HpaController(world)
    pipeline = VirtualPipeline(world, controller)
    recorder = Recorder()

    def record(now_ms: int) -> None:
        recorder.add(world.seconds(now_ms), row(world, controller.figures(), pipeline.utilization))

    period_ms = setup.pipeline.scrape_interval
    world.engine.every(period_ms, Stage.RECORD, record, first_ms=START_MS)
    for step in range(1, 101):
        world.engine.run_until(START_MS + setup.duration_ms * step // 100)
        if progress is not None:
            progress(step / 100)
    return document(world, recorder)
