"""The series of one target: its own labels joined to those it exposes, and what is said of the target itself.

Source: prometheus scrape/scrape.go (mutateSampleLabels, report).
"""

from collections.abc import Collection, Mapping

from gpuscale.series.labels import METRIC_NAME
from gpuscale.series.limits import Share
from gpuscale.series.samples import Series
from gpuscale.series.store import SeriesStore


class TargetSeries:
    """Makes the handles of a target's series.

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
        self.share = Share()
        """How much of the store its series take; what is said of the target itself does not count."""
        self._reports: dict[str, Series] = {}

    def ref(self, exposed: Mapping[str, str]) -> Series:
        """Return the series of exposed labels, the metric's name among them."""
        return self._store.ref(self.merged(exposed), self.share)

    def merged(self, exposed: Mapping[str, str]) -> dict[str, str]:
        """Return exposed labels and the target's own together."""
        merged = {**self._labels, **exposed, **self._kept}
        clashing = [name for name in self._kept if exposed.get(name)]
        for name in sorted(clashing, key=len):
            merged[_free_name(name, merged)] = exposed[name]
        return merged

    def report(self, name: str, value: float, t_ms: int) -> None:
        """Write what is said of the target, such as `up`."""
        ref = self._reports.get(name)
        if ref is None:
            ref = self._reports[name] = self._store.ref({**self._labels, METRIC_NAME: name})
        self._store.append_ref(ref, t_ms, value)

    def end_reports(self, t_ms: int) -> None:
        """End what was said of the target, because it is no more."""
        for series in self._reports.values():
            self._store.mark_stale(series, t_ms)


def _free_name(name: str, taken: Mapping[str, str]) -> str:
    """Return the name with as many `exported_` before it as make it unique."""
    while True:
        name = f"exported_{name}"
        if not taken.get(name):
            return name
