"""A reader over the stand-in, with a clock that moves by hand."""

from dataclasses import replace

import pytest

from gpuscale.agent.nvml.reader import NvmlReader
from gpuscale.agent.nvml.settings import NvmlSettings
from gpuscale.base.clock import ManualClock
from gpuscale.testing.nvml import FakeGpu, FakeNvml

START_MS = 1_700_000_000_000
UNHURRIED = NvmlSettings(patience_ms=10_000, deadline_ms=30_000)
"""Paces for GPUs that answer: a busy machine must not make one look as if it hung."""


class Bench:
    """A stand-in, a reader over it and the time they share."""

    def __init__(self, *gpus, settings=None, fields=None, layout=frozenset) -> None:
        self.clock = ManualClock(START_MS)
        self.nvml = FakeNvml(gpus or (FakeGpu(),), now_us=lambda: self.clock.now_ms() * 1000)
        self.reader = NvmlReader(
            # The thread that polls goes by the real clock, and time here by hand.
            replace(settings or UNHURRIED, xid_wait_ms=2, poll_period_ms=0),
            library=self.nvml,
            fields=None if fields is None else frozenset(fields),
            clock=self.clock,
            present=self.nvml.present,
            layout=layout,
        )

    @property
    def now_ms(self):
        return self.clock.now_ms()

    def read(self, after_s=1.0):
        """Let time pass, and return the readings then."""
        self.clock.advance(after_s)
        return self.reader.read(self.now_ms)

    def one(self, after_s=1.0):
        return self.read(after_s)[0]


@pytest.fixture
def bench():
    """Make benches that are closed in the end."""
    made = []

    def make(*gpus, **options):
        made.append(Bench(*gpus, **options))
        return made[-1]

    yield make
    for each in made:
        each.reader.close()
