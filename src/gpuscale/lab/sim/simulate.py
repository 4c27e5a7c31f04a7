"""A scenario in virtual time, from its first second to its last."""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from gpuscale.base.memory import CycleCollector, collecting_rarely
from gpuscale.hpa.cluster.nodes.policy import NodePolicyFactory
from gpuscale.hpa.policy import ReplicaPolicyFactory
from gpuscale.lab.sim.autoscaler import HpaController
from gpuscale.lab.sim.document.details import MAX_VALUES, Details
from gpuscale.lab.sim.document.document import document, row
from gpuscale.lab.sim.document.timeline import SeriesRecorder
from gpuscale.lab.sim.engine import EventStage
from gpuscale.lab.sim.lagged.hops import GpusByFormula
from gpuscale.lab.sim.lagged.reasons import why_not
from gpuscale.lab.sim.needs import needs_of
from gpuscale.lab.sim.pipeline import VirtualPipeline
from gpuscale.lab.sim.scenario.setup import Setup
from gpuscale.lab.sim.world import World

Fidelity = Literal["exact", "lagged"]
"""`exact`: by text, store and PromQL; `lagged`: what those would show, by formula."""
START_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z: virtual time needs some date, and the same one always."""


def simulate(
    setup: Setup,
    progress: Callable[[float], None] | None = None,
    *,
    replica_policy: ReplicaPolicyFactory | None = None,
    node_policy: NodePolicyFactory | None = None,
    fidelity: Fidelity = "exact",
    details: bool = False,
) -> dict[str, object]:
    """Return the document of the whole run; the same setup gives the same bytes.

    Args:
        setup: what to run.
        progress: called with the share done, 0 to 1, a hundred times.
        replica_policy: makes the policy of each HPA; None takes the scenario's.
        node_policy: makes the policy of the node pools; None takes the scenario's.
        fidelity: how metrics get to the HPAs; a scenario that `lab.sim.lagged` has no formula for is
            simulated exactly, and its document says why below `fidelity`.
        details: keep the series of single pods and GPUs however many values they have; otherwise a run with
            too many has none of them, and its document says so below `leftOut`.
    """
    setup = replace(
        setup,
        replica_policy=replica_policy or setup.replica_policy,
        node_policy=node_policy or setup.node_policy,
    )
    with collecting_rarely() as collector:
        return _run(setup, progress, fidelity, collector, details=details)


def _run(
    setup: Setup,
    progress: Callable[[float], None] | None,
    fidelity: Fidelity,
    collector: CycleCollector,
    *,
    details: bool,
) -> dict[str, object]:
    world = World(setup, START_MS, needs_of(setup).fields(setup.counters), one_by_one=True)
    controller = HpaController(world)
    missing = why_not(setup) if fidelity == "lagged" else ()
    is_lagged = fidelity == "lagged" and not missing
    gpus = GpusByFormula(world) if is_lagged else None
    pipeline = VirtualPipeline(world, controller, gpus)
    recorder = SeriesRecorder()
    of_details = Details(recorder, None if details else MAX_VALUES)

    def record(now_ms: int) -> None:
        shown = of_details.kept(pipeline.gpus.utilization)
        pipeline.gpus.shows_gpus = not of_details.left_out
        recorder.add(world.seconds(now_ms), row(world, controller.figures(), shown))

    period_ms = setup.pipeline.scrape_interval
    world.engine.every(period_ms, EventStage.RECORD, record, first_ms=START_MS)
    for step in range(1, 101):
        world.engine.run_until(START_MS + setup.duration_ms * step // 100)
        collector.look()
        if progress is not None:
            progress(step / 100)
    found = document(world, recorder)
    if of_details.left_out:
        found["leftOut"] = of_details.left_out
    if fidelity == "lagged":
        used = "lagged" if is_lagged else "exact"
        found["fidelity"] = {"asked": fidelity, "used": used, "because": list(missing)}
    return found
