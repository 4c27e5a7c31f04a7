"""A scenario in virtual time, from its first second to its last."""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from gpuscale.base.memory import CycleCollector, collecting_rarely
from gpuscale.base.pages.timeline import SeriesRecorder
from gpuscale.hpa.cluster.nodes import NodePolicyFactory
from gpuscale.hpa.controller import ReplicaPolicyFactory
from gpuscale.lab.sim.autoscaler import HpaController
from gpuscale.lab.sim.document.details import MAX_VALUES, Details
from gpuscale.lab.sim.document.document import document, row
from gpuscale.lab.sim.engine import EventStage
from gpuscale.lab.sim.formula.hops import GpusByFormula
from gpuscale.lab.sim.formula.reasons import why_not
from gpuscale.lab.sim.formula.samples import FailedQueryError
from gpuscale.lab.sim.needs import needs_of
from gpuscale.lab.sim.pipeline import VirtualPipeline
from gpuscale.lab.sim.scenario.setup import Setup
from gpuscale.lab.sim.world import World

Fidelity = Literal["exact", "lagged", "fluid"]
"""`exact`: what each hop shows; `fluid`: whole services, in steps. `lagged` is an older name of `exact`."""
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
    series: bool = True,
    say: Callable[[str], None] | None = None,
    through_pipeline: bool = False,
) -> dict[str, object]:
    """Return the document of a whole run; an equal setup gives equal bytes.

    What GPUs read reaches the HPAs by formula where that gives what text, store and PromQL give, and through
    those otherwise. The document says which, and why, below `fidelity`.

    Args:
        setup: what to run.
        progress: called with the share done, 0 to 1, a hundred times; not by `fluid`.
        replica_policy: makes the policy of each HPA; None takes the scenario's.
        node_policy: makes the policy of the node pools; None takes the scenario's.
        fidelity: how closely the hops between GPUs and HPAs are followed.
        details: keep the series of single pods and GPUs however many values they have; otherwise a run with
            too many has none of them, and its document says so below `leftOut`. `fluid` has none.
        series: whether anyone looks at the series; `fluid` can do without, and saves 2 GiB in large runs.
        say: gets a line before `fluid` compiles its loop, and where numba is not installed.
        through_pipeline: use no formula; for comparison with formulas.

    Raises:
        UsageError: the scenario has what `fluid` does not model.
    """
    setup = replace(
        setup,
        replica_policy=replica_policy or setup.replica_policy,
        node_policy=node_policy or setup.node_policy,
    )
    if fidelity == "fluid":
        from gpuscale.lab.sim.fluid.run import simulate_fluid  # it imports numpy

        return simulate_fluid(setup, say, series=series)
    missing = why_not(setup)
    found = None
    formula, pipeline = ("lagged", "exact") if fidelity == "lagged" else ("formula", "pipeline")
    used = pipeline
    with collecting_rarely() as collector:
        if not (missing or through_pipeline):
            try:
                found = _run(setup, progress, collector, by_formula=True, details=details)
                used = formula
            except FailedQueryError:
                missing = (
                    "a query fails, and its error may name rows that formulas have in another order",
                )
        if found is None:
            found = _run(setup, progress, collector, by_formula=False, details=details)
    found["fidelity"] = {"asked": fidelity, "used": used, "because": list(missing)}
    return found


def _run(
    setup: Setup,
    progress: Callable[[float], None] | None,
    collector: CycleCollector,
    *,
    by_formula: bool,
    details: bool,
) -> dict[str, object]:
    world = World(setup, START_MS, needs_of(setup).fields(setup.counters), one_by_one=True)
    controller = HpaController(world)
    pipeline = VirtualPipeline(world, controller, GpusByFormula(world) if by_formula else None)
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
    return found
