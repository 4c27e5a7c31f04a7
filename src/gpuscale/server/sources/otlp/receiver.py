"""Stores pushed OTLP metrics: each client within its share, and only series that a rule reads.

A sample has the time of its measurement, or that of its arrival where the client's clock is ahead. A request
that comes twice changes nothing. Who pushes may name any pod: the right to push is the right to do that.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuscale.base.clock import Clock
from gpuscale.base.exposition.reading.entries import ExpositionError
from gpuscale.series import METRIC_NAME, WantedSeries
from gpuscale.series.otlp import OtlpSample, Refusals, Request, samples
from gpuscale.series.storage import ScrapeLimits, SeriesStore, TargetShare, check_labels
from gpuscale.server.sources.otlp.settings import OtlpSettings

_MAX_CLIENTS = 1_000
_AT_ONCE = 500
"""Samples between two looks at the event loop."""
_MAX_REASON_CHARS = 1_000


@dataclass(frozen=True, slots=True)
class Taken:
    """The result of a push: samples stored and left out."""

    samples: int
    """That the store has now."""
    unwanted: int = 0
    """Of series that no rule can ask for."""
    refused: Mapping[str, int] = field(default_factory=dict)
    """Points and samples by reason."""

    @property
    def rejected(self) -> int:
        return sum(self.refused.values())

    @property
    def reason(self) -> str:
        """Return why samples were left out; empty if none were."""
        refusals = "; ".join(f"{count} for {reason}" for reason, count in self.refused.items())
        return refusals[:_MAX_REASON_CHARS]


class OtlpReceiver:
    """Stores pushed requests.

    Args:
        settings: names and labels.
        store: gets the samples.
        wanted: decides which series are kept.
        limits: of labels, and of a client's series.
        clock: gives the arrival times.
    """

    def __init__(
        self,
        settings: OtlpSettings,
        store: SeriesStore,
        wanted: WantedSeries,
        limits: ScrapeLimits,
        clock: Clock,
    ) -> None:
        self.requests: Counter[str] = Counter()
        """By result: ok, partial, malformed."""
        self.samples: Counter[str] = Counter()
        """By result: stored, unwanted, refused."""
        self._settings = settings
        self._store = store
        self._wanted = wanted
        self._limits = limits
        self._clock = clock
        self._shares: OrderedDict[str, TargetShare] = OrderedDict()

    async def take(self, client: str, request: Request) -> Taken:
        """Store what a client pushed.

        Args:
            client: whose share of the store it takes.
            request: as it was read.
        """
        share = self._share(client)
        refused = Refusals()
        stored = unwanted = 0
        self._store.advance(self._clock.now_ms())
        before = dict(self._store.stats().refused)
        for number, sample in enumerate(samples(request, self._settings.promoted, refused), 1):
            if not self._wanted.keeps(sample.labels[METRIC_NAME]):
                unwanted += 1
            elif self._put(sample, share, refused, before):
                stored += 1
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
                before = dict(self._store.stats().refused)
        taken = Taken(stored, unwanted, refused.points)
        self.requests["partial" if taken.rejected else "ok"] += 1
        self.samples.update(stored=stored, unwanted=unwanted, refused=taken.rejected)
        return taken

    def _put(
        self, sample: OtlpSample, share: TargetShare, refused: Refusals, before: dict[str, int]
    ) -> bool:
        """Store a sample; return whether the store has it."""
        try:
            check_labels(sample.labels, self._limits, "otlp")
        except ExpositionError as error:
            refused.add(f"{sample.labels[METRIC_NAME][:100]}: {error}", 1)
            return False
        store, now_ms = self._store, self._clock.now_ms()
        t_ms = min(sample.t_ms, now_ms)
        ref = store.ref(sample.labels, share)
        if sample.is_end:
            store.mark_stale(ref, t_ms)
            return True
        if self._limits.series and share.series >= self._limits.series and not ref.is_listed:
            refused.add(f"more than {self._limits.series} series of one client", 1)
            return False
        if ref.range is not None and not ref.range.has(sample.value):
            store.leave_out(ref, sample.value, t_ms)
            store.mark_stale(ref, t_ms)
            before |= store.stats().refused
            name = sample.labels[METRIC_NAME][:100]
            refused.add(f"{name} with an impossible value, expected {ref.range}", 1)
            return False
        if store.append_ref(ref, t_ms, sample.value, now_ms):
            return True
        after = store.stats().refused
        reason = next((name for name in after if after[name] > before[name]), "not stored")
        before |= after
        if reason == "duplicate_timestamp":
            return True
        refused.add(reason.replace("_", " "), 1)
        return False

    def _share(self, client: str) -> TargetShare:
        share = self._shares.pop(client, None) or TargetShare()
        self._shares[client] = share
        if len(self._shares) > _MAX_CLIENTS:
            self._shares.popitem(last=False)
        return share
