"""GPU series computed by formula, without text or a store.

A value is served from the scrape that read it until the next one, or until PromQL no longer looks back at
it. A pod's GPUs that work alike are read once, and so are idle GPUs of one model.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from gpuscale.lab.sim.formula.fields import is_of_device, values_of
from gpuscale.lab.sim.formula.formulas import AGGREGATIONS, Formula, Formulas
from gpuscale.lab.sim.load.shared_readings import AlikeReadings, SharedReadings
from gpuscale.lab.sim.pipeline import percent_of
from gpuscale.lab.sim.world import World
from gpuscale.series import METRIC_NAME, LabelSet, Matcher, label_set
from gpuscale.series.storage import Selector, Series, SeriesStore

_IDLE = ""
"""In place of the key of a pod."""


@dataclass(frozen=True, slots=True)
class Scrape:
    """The values of the latest scrape."""

    at_ms: int
    pods: Mapping[str, AlikeReadings] = field(default_factory=dict)
    """Pod key to the values of its GPUs."""
    idle: Mapping[str, list[float]] = field(default_factory=dict)
    """Series to the values of all GPUs without a pod."""


class ReadGpus:
    """The GPUs of a simulation, as queries see them.

    Args:
        world: whose GPUs are read.
        formulas: what is asked of them.
        store: has all other series; its clock goes on with each scrape.
        series: those that are asked for.
    """

    def __init__(
        self,
        world: World,
        formulas: Formulas,
        store: SeriesStore,
        series: Iterable[str],
    ) -> None:
        self.latest = Scrape(world.start_ms)
        self._world = world
        self._formulas = formulas
        self._store = store
        self._series = tuple(sorted(series))
        self._readings = SharedReadings(
            world.cluster,
            world.gpus,
            world.containers.processes,
            world.setup.pipeline.collect_interval,
            self._series,
            values_of,
            percent_of,
        )
        self._touched_ms: dict[tuple[str, bool], int] = {}
        """Series, and whether of idle GPUs, to the latest scrape with a sample of it, or an end of one."""
        self._held: frozenset[str] = frozenset()
        self._idle_percent: dict[int, float | None] = {}
        """How busy idle GPUs say they are, by their model."""
        self._results: dict[Formula, tuple[Series, ...]] = {}

    def scrape(self, now_ms: int) -> None:
        """Read the GPUs, as a scrape of all nodes would."""
        self._store.advance(now_ms)
        held = self._readings.read(now_ms)
        idle = self._idle(now_ms)
        for name in held | self._held:
            self._touched_ms[name, False] = now_ms
        for name in idle.keys() | self.latest.idle.keys():
            self._touched_ms[name, True] = now_ms
        self._held = held
        self.latest = Scrape(now_ms, self._readings.by_pod, idle)
        self._results.clear()

    def utilization(self) -> dict[str, float | None]:
        """Return the utilization in percent of the latest scrape, by series name."""
        shown = self._readings.utilization()
        for node, reader in self._world.gpus.readers.items():
            for index, keys in enumerate(self._world.cluster.devices.holders(node)):
                if not keys:
                    shown[f"gpu/{node}/{index}"] = self._idle_percent[id(reader.model)]
        return shown

    def found(self, selector: Selector, series: str, since_ms: int) -> list[Mapping[str, str]]:
        """Return a field's label sets that match: one for GPUs with a pod, one for idle GPUs.

        Of the labels, those that differ from node to node are left out.
        """
        kept_ms = self.latest.at_ms - self._store.retention_ms
        namespace, pod = self._formulas.owner
        found: list[Mapping[str, str]] = []
        for is_idle, owner in ((False, {namespace: "x", pod: "x"}), (True, {})):
            touched_ms = self._touched_ms.get((series, is_idle))
            labels = {METRIC_NAME: series, **self._formulas.constants, **owner}
            is_new = touched_ms is not None and touched_ms >= max(since_ms, kept_ms)
            if is_new and all(each.predicate()(labels.get(each.name, "")) for each in selector):
                found.append(labels)
        return found

    def results(self, formula: Formula) -> tuple[Series, ...]:
        """Return a formula's result: a series with one sample for each group."""
        if formula not in self._results:
            self._results[formula] = tuple(self._grouped(formula))
        return self._results[formula]

    def _grouped(self, formula: Formula) -> Iterator[Series]:
        takes_agents, takes_pod = _conditions(formula.matchers, self._formulas)
        if not takes_agents:
            return
        labels_of = self._labels_of(formula.labels)
        groups: dict[LabelSet, list[float]] = {}
        for key, values in self._owned_values(formula.series):
            namespace, _, name = key.partition("/")
            if takes_pod(namespace, name):
                groups.setdefault(labels_of(namespace, name), []).extend(values)
        reduce = AGGREGATIONS[formula.operator]
        for labels, values in groups.items():
            result = Series(labels)
            result.append(self.latest.at_ms, reduce(values))
            yield result

    def _owned_values(self, series: str) -> Iterator[tuple[str, list[float]]]:
        for key, shared in self.latest.pods.items():
            values = shared.values.get(series)
            if values:
                yield key, values
        idle = self.latest.idle.get(series)
        if idle:
            yield _IDLE, idle

    def _labels_of(self, names: tuple[str, ...]) -> Callable[[str, str], LabelSet]:
        constants = {
            name: value for name, value in self._formulas.constants.items() if name in names
        }
        of_namespace, of_pod = self._formulas.owner
        if not {of_namespace, of_pod} & {*names}:
            only = label_set(constants)
            return lambda _namespace, _name: only

        def labels(namespace: str, name: str) -> LabelSet:
            found = {**constants, of_namespace: namespace, of_pod: name}
            return label_set({each: found[each] for each in names if found[each]})

        return labels

    def _idle(self, now_ms: int) -> dict[str, list[float]]:
        """Return the values of all idle GPUs; those of one model have equal readings."""
        counts: Counter[int] = Counter()
        one: dict[int, tuple[str, int]] = {}
        for node, reader in self._world.gpus.readers.items():
            holders = self._world.cluster.devices.holders(node)
            if () in holders:
                counts[id(reader.model)] += holders.count(())
                one.setdefault(id(reader.model), (node, holders.index(())))
        found: dict[str, list[float]] = {}
        for model, (node, index) in one.items():
            reading = self._world.gpus.read_one(node, index, now_ms)
            self._idle_percent[model] = percent_of(reading)
            for name in filter(is_of_device, self._series):
                values = list(values_of(reading, name)) * counts[model]
                if values:
                    found.setdefault(name, []).extend(values)
        return found


def _conditions(
    matchers: tuple[Matcher, ...], formulas: Formulas
) -> tuple[bool, Callable[[str, str], bool]]:
    """Return whether matchers accept the agents' labels, and a test for a pod's."""
    of_namespace, of_pod = formulas.owner
    constants = formulas.constants
    takes_all = all(
        each.predicate()(constants[each.name]) for each in matchers if each.name in constants
    )
    namespaces = [each.predicate() for each in matchers if each.name == of_namespace]
    pods = [each.predicate() for each in matchers if each.name == of_pod]
    return (
        takes_all,
        lambda namespace, name: (
            all(takes(namespace) for takes in namespaces) and all(takes(name) for takes in pods)
        ),
    )
