"""The hops from GPU readings to queries as formulas: window, scrape, staleness, lookback.

All other series are in a store as in an exact run: requests, what pods serve, what rules recorded. Scrapes,
rules, looks and polls have their phases from `lab.sim.pipeline`, so all see the same at the same moments.
"""

from collections.abc import Mapping, Sequence

from gpuscale.lab.sim.cluster import ClusterDirectory
from gpuscale.lab.sim.formula.client import FormulaClient
from gpuscale.lab.sim.formula.gpus import ReadGpus
from gpuscale.lab.sim.formula.reasons import ScenarioQueries
from gpuscale.lab.sim.formula.samples import FormulaSamples
from gpuscale.lab.sim.metrics_client import VirtualMetricsClient
from gpuscale.lab.sim.world import World
from gpuscale.series import Value
from gpuscale.series.promql import Samples
from gpuscale.series.storage import SeriesStore


class GpusByFormula:
    """GPU readings by formula.

    Args:
        world: whose GPUs are read; nothing in it may be against `reasons.why_not`.
    """

    def __init__(self, world: World) -> None:
        self.is_text = False
        self.store = SeriesStore()
        self.utilization: dict[str, float | None] = {}
        self.shows_gpus = True
        questions = ScenarioQueries(world.setup)
        self._formulas = questions.formulas
        self._gpus = ReadGpus(world, self._formulas, self.store, questions.fields)
        self._samples = FormulaSamples(self.store, self._formulas, self._gpus)

    def client(self, directory: ClusterDirectory) -> VirtualMetricsClient:
        return FormulaClient(directory, self._samples, self._formulas, self._gpus)

    def samples(self) -> Samples:
        return self._samples

    def scrape(self, now_ms: int) -> None:
        self._gpus.scrape(now_ms)
        if self.shows_gpus:
            self.utilization = self._gpus.utilization()

    def series_now(self, selector: str, start_ms: int) -> Sequence[Mapping[str, str]]:
        return self._samples.series_now(selector, start_ms)

    async def query(self, promql: str, at_ms: int) -> Value:
        return self._samples.query_now(promql, at_ms)
