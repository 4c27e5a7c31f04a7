"""When to collect, so that a scrape finds values that are new.

Scrapers come at fixed times, most of them at a multiple of the collect interval. Without looking at them a
value is half an interval old at a scrape, in the mean. Two scrapes at the same point of the interval say
when the next will be, and collects move to end just before that point. Where scrapes come at other times,
as those of several scrapers may, collects stay as they are.
"""

_SAME_POINT = 0.1
"""Part of the interval by which two scrapes may differ and still be at the same point of it."""
_MARGIN_MS = 15
"""From the end of a collect to the scrape, for what differs from one to the next."""


class ScrapePhase:
    """The phase of scrapes within the collect interval."""

    def __init__(self) -> None:
        self._last_ms: int | None = None
        self._gap_ms: int | None = None

    def note(self, at_ms: int) -> None:
        """Record a scrape."""
        self._gap_ms = None if self._last_ms is None else at_ms - self._last_ms
        self._last_ms = at_ms

    def shifted_ms(self, due_ms: int, interval_ms: int, took_ms: int) -> int:
        """Return when to start the next collect, at most half an interval from its due time.

        Args:
            due_ms: when it would begin.
            interval_ms: from one collect to the next.
            took_ms: how long a collect takes.
        """
        if self._last_ms is None or self._gap_ms is None or self._gap_ms < interval_ms // 2:
            return due_ms
        off_ms = self._gap_ms % interval_ms
        if min(off_ms, interval_ms - off_ms) > _SAME_POINT * interval_ms:
            return due_ms
        lead_ms = min(interval_ms // 2, took_ms + _MARGIN_MS)
        later_ms = (self._last_ms - lead_ms - due_ms) % interval_ms
        return due_ms + (later_ms if later_ms <= interval_ms // 2 else later_ms - interval_ms)
