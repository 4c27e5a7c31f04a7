"""A target's series: exposed labels joined with its own, and reports such as `up`.

Source: prometheus scrape/scrape.go (mutateSampleLabels, report).
"""

from collections.abc import Collection, Iterable, Mapping

from gpuscale.series.labels import METRIC_NAME
from gpuscale.series.storage.groups import SeriesGroup
from gpuscale.series.storage.limits import ScrapeLimits, TargetShare
from gpuscale.series.storage.metadata import MetricMetadata
from gpuscale.series.storage.samples import Series
from gpuscale.series.storage.store import SeriesStore


class TargetSeries:
    """Creates the handles of a target's series.

    Args:
        store: where the series are.
        labels: the target's own, such as job, instance, namespace and pod; empty ones are left out.
        honor_labels: whether an exposed label wins over the target's of the same name; otherwise the exposed
            one is kept as `exported_<name>`.
        own_labels: names of labels that are the target's even so.
    """

    def __init__(
        self,
        store: SeriesStore,
        labels: Mapping[str, str],
        *,
        honor_labels: bool,
        own_labels: Collection[str] = (),
    ) -> None:
        self._store = store
        self._labels = {name: value for name, value in labels.items() if value}
        kept = own_labels if honor_labels else self._labels
        self._kept = {name: value for name, value in self._labels.items() if name in kept}
        """Those that no exposed label replaces."""
        self.share = TargetShare()
        """How much of the store its series take; what is said of the target itself does not count."""
        self._reports: dict[str, Series] = {}
        self._report_group: SeriesGroup | None = None

    def ref(self, exposed: Mapping[str, str]) -> Series:
        """Return the series of exposed labels, metric name included."""
        return self._store.ref(self.merged(exposed), self.share)

    def merged_ref(self, labels: Mapping[str, str]) -> Series:
        """Return the series of labels that already include the target's own."""
        return self._store.ref(labels, self.share)

    def room(self, limits: ScrapeLimits) -> int:
        """Return how many more series the target may begin."""
        room = self._store.room(self.share)
        return min(room, limits.series - self.share.series) if limits.series else room

    def merged(self, exposed: Mapping[str, str]) -> dict[str, str]:
        """Return exposed labels joined with the target's own."""
        merged = {**self._labels, **exposed, **self._kept}
        clashing = [name for name in self._kept if exposed.get(name)]
        for name in sorted(clashing, key=len):
            merged[_free_name(name, merged)] = exposed[name]
        return merged

    def describe(self, metadata: Iterable[MetricMetadata]) -> bool:
        """Store the metadata of the target's metrics; return whether all of it is stored."""
        return self._store.metadata.put(self, self._labels, metadata)

    def report(self, values: Mapping[str, float], t_ms: int) -> None:
        """Write reports about the target, such as `up`."""
        reports = self._reports
        for name in values:
            if name not in reports:
                reports[name] = self._store.ref({**self._labels, METRIC_NAME: name})
        refs = [reports[name] for name in values]
        if self._report_group is None:
            self._report_group = self._store.group_of(refs)
        self._store.append_many(refs, list(values.values()), t_ms, group=self._report_group)

    def end_reports(self, t_ms: int) -> None:
        """End the target's reports and metadata, as it is gone."""
        self._store.metadata.drop(self)
        for series in self._reports.values():
            self._store.mark_stale(series, t_ms)


def _free_name(name: str, taken: Mapping[str, str]) -> str:
    """Return the label name with as many `exported_` prefixes as make it unique."""
    while True:
        name = f"exported_{name}"
        if not taken.get(name):
            return name
