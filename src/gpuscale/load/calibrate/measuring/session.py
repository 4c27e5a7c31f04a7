"""A whole calibration, from the first request to the check, within a time limit."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from gpuscale.base.errors import UnavailableError
from gpuscale.load.calibrate.analysis import Analysis, Measurements, analyse
from gpuscale.load.calibrate.levels import Baseline, Level
from gpuscale.load.calibrate.measuring.sending import LevelPlan, Loader
from gpuscale.load.calibrate.ramp import Done, Next, RampSettings, narrowing, next_level

_NARROWING = 4
_ALONE_AGAIN = 2
"""A machine may be busy for some seconds."""
LEFT_OUT = "it was left out"
_END_S = 8.0
"""For the look at the service in the end."""


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """What a calibration does, and how long it may take."""

    ramp: RampSettings
    total_s: float = 900.0
    headroom: float = 0.0
    checks: bool = True
    seed: int = 1


@dataclass(frozen=True, slots=True)
class PredictionCheck:
    """A step to the target's rate, measured against what was predicted."""

    level: Level
    predicted_ms: float
    measured_ms: float | None

    @property
    def difference(self) -> float | None:
        """Return measured divided by predicted, minus one."""
        return None if self.measured_ms is None else self.measured_ms / self.predicted_ms - 1


@dataclass(slots=True)
class Session:
    """One calibration.

    Args:
        loader: sends the levels.
        settings: how.
        say: gets each thing as it happens, in words.
    """

    loader: Loader
    settings: SessionSettings
    say: Callable[[str], None]

    async def run(self) -> tuple[Measurements, Analysis, PredictionCheck | str]:
        """Return the measurements, the conclusions, and the check or why there is none.

        Raises:
            UnavailableError: the service answers no single request.
        """
        ramp = self.settings.ramp
        end_s = time.monotonic() + self.settings.total_s - _END_S
        self.say("without load")
        baseline, counts = await self.loader.alone()
        for _ in range(_ALONE_AGAIN):
            if not baseline.is_late(ramp.objective) or self.loader.stop.is_set():
                break
            self.say(f"without load, again: the generator was late (p99 {baseline.late_ms:.3g} ms)")
            baseline, counts = await self.loader.alone()
        if len(baseline.latencies_ms) == 0:
            kinds = ", ".join(f"{kind}: {count}" for kind, count in counts.faults.items())
            raise UnavailableError(
                f"{self.loader.request.url}: no answer to single requests ({kinds or 'in time'})"
            )
        levels: list[Level] = []
        while True:
            step = next_level(levels, baseline, ramp)
            step = self._allowed(step, end_s, levels)
            if isinstance(step, Done):
                break
            levels.append(await self._measure(step, levels, baseline))
        end = step
        analysis = await self._analysed(baseline, levels, end)
        for _ in range(_NARROWING):
            if not analysis.is_modelled or analysis.limit is None or not end.is_whole:
                break
            limit = analysis.limit
            more = narrowing(levels, limit.rate, limit.low, limit.high)
            if more is None or isinstance(self._allowed(more, end_s, levels), Done):
                break
            levels.append(await self._measure(more, levels, baseline))
            analysis = await self._analysed(baseline, levels, end)
        check = await self._check(analysis, baseline, levels, end_s)
        after: Baseline | None = None
        if levels and levels[-1].answered and not self.loader.stop.is_set():
            self.say("without load again")
            await self.loader.drain(baseline)
            found, _ = await self.loader.alone()
            after = found if found.latencies_ms else None
        measured = Measurements(ramp.objective, baseline, tuple(levels), end, after)
        return measured, await asyncio.to_thread(analyse, measured, self.settings.headroom), check

    def _allowed(self, step: Next | Done, end_s: float, levels: list[Level]) -> Next | Done:
        """Return the next step, or the end if the user or the time limit says so."""
        if self.loader.stop.is_set():
            return Done("interrupted", is_whole=False)
        if isinstance(step, Done):
            return step
        _, length_s = self.settings.ramp.hold(step.rate)
        if time.monotonic() + length_s > end_s:
            return Done(f"the time is up after {len(levels)} levels; see --for", is_whole=False)
        return step

    async def _measure(self, step: Next, levels: list[Level], baseline: Baseline) -> Level:
        if levels and (levels[-1].cut or not levels[-1].keeps_up()):
            await self.loader.drain(baseline)
        warmup_s, length_s = self.settings.ramp.hold(step.rate)
        self.say(f"{step.rate:.4g} requests/s for {length_s:g} s ({step.why})")
        seed = 1000 * self.settings.seed + len(levels)
        return await self.loader.level(LevelPlan(step.rate, warmup_s, length_s, seed))

    async def _analysed(self, baseline: Baseline, levels: list[Level], end: Done) -> Analysis:
        measured = Measurements(self.settings.ramp.objective, baseline, tuple(levels), end)
        return await asyncio.to_thread(analyse, measured, self.settings.headroom)

    async def _check(
        self, analysis: Analysis, baseline: Baseline, levels: list[Level], end_s: float
    ) -> PredictionCheck | str:
        """Step the load from half the target's rate to all of it, and compare; return why if impossible."""
        curve, limit = analysis.curve, analysis.limit
        if not self.settings.checks:
            return LEFT_OUT
        if limit is None:
            return "there is no limit"
        if not analysis.is_bounded:
            return "no rate was measured that misses the objective"
        if curve is None:
            return "no queue explains what was measured, so nothing is predicted"
        rate = analysis.target_rate or limit.low
        objective = self.settings.ramp.objective
        low = Next(rate / 2, "check, half of it")
        high = Next(rate, "check")
        if isinstance(end := self._allowed(high, end_s, levels), Done):
            return end.why
        await self._measure(low, levels, baseline)
        level = await self._measure(high, [*levels, levels[-1]], baseline)
        if self.loader.stop.is_set():
            return "interrupted"
        if level.is_late(objective):
            return f"the generator was late (p99 {level.late_ms:.3g} ms): use another machine, or try again"
        predicted = curve.predicted_ms(level, objective)
        return PredictionCheck(level, predicted, level.percentile_ms.get(objective.percentile))
