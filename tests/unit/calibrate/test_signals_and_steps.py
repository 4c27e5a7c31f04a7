"""Which signals are fit, the target's arithmetic, the scale-out, the ramp's bounds, and the files."""

import math
from dataclasses import replace

import pytest

from gpuscale.lab.sim.scenario.loading import load_setup
from gpuscale.load.calibrate.analysis import Measurements, analyse
from gpuscale.load.calibrate.fitting import fit_queue
from gpuscale.load.calibrate.knee import Curve, Limit
from gpuscale.load.calibrate.levels import Baseline, Level, Objective, measured_limit
from gpuscale.load.calibrate.queues import SlotQueue
from gpuscale.load.calibrate.ramp import Done, Next, RampSettings, next_level
from gpuscale.load.calibrate.scaleout import LoadStep, predict_step
from gpuscale.load.calibrate.signals import Fitness, judge_signals
from gpuscale.load.calibrate.writing import (
    ChosenSignal,
    ScaledWorkload,
    hpa_of,
    hpa_text,
    scaled_object_text,
    scenario_text,
    service_model,
    target_quantity,
)
from gpuscale.ops.lint.linting import lint
from ramps import baseline, ramp

OBJECTIVE = Objective(95, 50)
LIMIT = Limit(80, 78, 82, 0.03)
RATES = (20, 40, 60, 78, 90, 110)


def level(rate: float, **signals: float) -> Level:
    p95 = 20.0 if rate <= 80 else 90.0
    return Level(
        rate,
        (),
        1,
        5,
        int(4 * rate),
        0,
        10,
        {95: p95},
        signals={k: (v,) for k, v in signals.items()},
    )


def judged(**curves: dict[int, float]) -> dict[str, Fitness]:
    levels = [level(rate, **{name: each[rate] for name, each in curves.items()}) for rate in RATES]
    return {each.name: each.fitness for each in judge_signals(levels, OBJECTIVE, LIMIT)}


def test_signals_are_told_apart_by_their_curves() -> None:
    found = judged(
        in_proportion={rate: rate / 10 for rate in RATES},
        busy_at_once={20: 90, 40: 99, 60: 100, 78: 100, 90: 100, 110: 100},
        queue={20: 0.0, 40: 0.1, 60: 0.9, 78: 4, 90: 15, 110: 60},
        memory=dict.fromkeys(RATES, 40.0),
    )
    assert found == {
        "in_proportion": Fitness.GOOD,
        "busy_at_once": Fitness.SATURATED,
        "queue": Fitness.STEEP,
        "memory": Fitness.SATURATED,
    }


def test_the_target_is_below_the_last_good_value_by_tolerance_and_headroom() -> None:
    levels = [level(rate, load=rate / 10) for rate in RATES]
    (found,) = judge_signals(levels, OBJECTIVE, LIMIT, headroom=0.2)
    # 78 requests/s, the lower end, are a load of 7.8; 7.8 / 1.1 * 0.8.
    assert found.target == pytest.approx(5.673, abs=0.001)


def test_no_value_is_not_zero() -> None:
    levels = [level(20, load=2.0), *(level(rate) for rate in RATES[1:])]
    (found,) = judge_signals(levels, OBJECTIVE, LIMIT)
    assert (found.fitness, found.target) == (Fitness.ABSENT, None)


@pytest.mark.parametrize(
    ("value", "text"), [(65.93, "65.9"), (5.6999, "5.69"), (0.01239, "0.012"), (1234.5, "1230")]
)
def test_targets_are_rounded_down(value: float, text: str) -> None:
    assert target_quantity(value) == text


def fitted() -> Curve:
    fit = ramp(SlotQueue(100, 1, 0.01), 10, OBJECTIVE, 1, spread=False).fit
    return Curve(fit)


def test_a_step_is_decided_by_the_hpa_and_served_after_the_start_up() -> None:
    curve = fitted()
    levels = [level(rate, load=float(min(rate, 100))) for rate in RATES]
    (signal,) = judge_signals(levels, OBJECTIVE, LIMIT)
    assert signal.target is not None
    target = ChosenSignal("load", signal, signal.target)
    hpa = hpa_of(hpa_text(ScaledWorkload("web"), target, OBJECTIVE, LIMIT))
    step = LoadStep(70, 140, startup_s=60, signal_delay_s=0)
    found = predict_step(curve, OBJECTIVE, 80, 70.9, signal.points, hpa, step)
    # One replica serves 100 of 140 at most, so the HPA sees 100 / 70.9 = 1.41, and asks for 2.
    assert (found.from_replicas, found.needed_replicas) == (1, 2)
    assert found.decided_s == 14  # the first sync, 15 s after the step begins with second 0
    assert found.changes[0] == (14, 2)
    assert found.ready_s is not None
    assert found.ready_s >= 14 + 60
    # 40 requests/s too many wait for a minute and more: 40 * 74 / 100 = 30 s.
    assert found.worst_ms == pytest.approx(30_000, rel=0.1)


def test_manifests_have_nothing_that_lint_is_against() -> None:
    levels = [level(rate, load=rate / 10) for rate in RATES]
    (signal,) = judge_signals(levels, OBJECTIVE, LIMIT)
    target = ChosenSignal(
        "load", signal, 6.4, 0.1, 'sum(load{namespace="ml"})', "http://prometheus:9090"
    )
    place = ScaledWorkload("web", "ml")
    for text in (
        hpa_text(place, target, OBJECTIVE, LIMIT),
        scaled_object_text(place, target, OBJECTIVE, LIMIT),
    ):
        report = lint([("file.yaml", text)])
        assert [each.what for each in report.findings if each.check.severity.value != "note"] == []


def test_the_scenario_has_the_capacity_that_was_measured() -> None:
    service = service_model(SlotQueue(123, 3, 0.03), 30)
    text = scenario_text(ScaledWorkload("web"), service, (50, 100), 60, 45)
    (workload,) = load_setup(text, "s.yaml", lambda _: "", lambda *_: None).workloads
    assert workload.model.largest_rate == pytest.approx(123, rel=0.001)


def test_the_ramp_grows_closes_in_and_never_exceeds_its_bounds() -> None:
    settings = RampSettings(OBJECTIVE, max_rate=30.0, hold_s=4)
    alone = baseline(10, 1, spread=False)
    assert next_level([], alone, settings) == Next(250 / alone.mean_ms, "first")
    kept = [level(24.5), level(30.0)]
    end = next_level(kept, alone, settings)
    assert isinstance(end, Done)
    assert "more was not allowed" in end.why
    assert not end.is_whole
    wide = RampSettings(OBJECTIVE)
    assert next_level([level(40), level(64)], alone, wide) == Next(64 * 1.6, "growing")
    closer = next_level([level(64), level(102.4)], alone, wide)
    assert closer == Next(math.sqrt(64 * 102.4), "closing in")


@pytest.mark.parametrize(
    ("kept", "missed", "found", "against"),
    [
        ((30, 48, 76), (122,), (76, 122), ()),
        ((30, 48, 76), (40, 122), (76, 122), (40,)),
        ((30, 76), (37, 122), (30, 37), (76,)),  # as many against each: the lower one
        ((30, 80, 85), (82, 122), (80, 82), ()),  # by chance, so near to each other
        ((), (40, 60), (0, 40), ()),
        ((30, 60), (), (60, None), ()),
    ],
)
def test_one_level_against_the_rest_moves_no_limit(kept, missed, found, against) -> None:
    levels = [level_of(rate, keeps=True) for rate in kept]
    levels += [level_of(rate, keeps=False) for rate in missed]
    border = measured_limit(levels, OBJECTIVE)
    assert (border.kept, border.missed) == found
    assert tuple(each.rate for each in border.against) == against


def level_of(rate: float, *, keeps: bool) -> Level:
    return Level(rate, (), 1, 5, int(4 * rate), 0, 10, {95: 20.0 if keeps else 90.0})


def test_the_ramp_measures_a_level_again_that_others_contradict_once() -> None:
    settings, alone = RampSettings(OBJECTIVE), baseline(10, 1, spread=False)
    first = [level_of(rate, keeps=True) for rate in (30, 48, 76)]
    levels = [*first, level_of(122, keeps=False), level_of(40, keeps=False)]
    step = next_level(levels, alone, settings)
    assert isinstance(step, Next)
    assert (step.rate, step.why) == (40, "again, as other levels say otherwise")
    step = next_level([*levels, level_of(40, keeps=True)], alone, settings)
    assert step == Next(math.sqrt(76 * 122), "closing in")


def test_levels_that_contradict_each_other_give_no_limit() -> None:
    """Missed at 37 and kept at 76, each twice: an answer of 30 would be less than half of what was kept."""
    levels = [level_of(rate, keeps=True) for rate in (30, 76, 77)]
    levels += [level_of(rate, keeps=False) for rate in (37, 38, 122)]
    measured = Measurements(OBJECTIVE, baseline(10, 1, spread=False), tuple(levels), Done("over"))
    analysis = analyse(measured)
    assert (analysis.limit, analysis.fit, analysis.knee, analysis.signals) == (None, None, None, ())
    assert "kept at 76, kept at 77 requests/s, expected" in analysis.notes[-1]


def test_levels_of_a_late_generator_say_nothing_and_three_of_them_end_it() -> None:
    settings, alone = RampSettings(OBJECTIVE), baseline(10, 1, spread=False)
    late = Level(24.5, (), 1, 5, 100, 0, 10, {95: 900.0}, late_ms=40)
    assert next_level([late], alone, settings) == Next(250 / alone.mean_ms, "again")
    end = next_level([late] * 3, alone, settings)
    assert isinstance(end, Done)
    assert "too busy" in end.why


def test_single_requests_of_a_late_generator_blame_the_machine_and_not_the_service() -> None:
    """12 ms requests that took 159 ms beside other programs; the generator was as late itself."""
    slow = Baseline((12.0,) * 9 + (159.0,) * 10, late_ms=Objective(95, 50).most_late_ms + 1)
    end = next_level([], slow, RampSettings(Objective(95, 50)))
    assert isinstance(end, Done)
    assert not end.is_whole
    assert "too busy" in end.why
    assert "at single requests" in end.why
    # The same latencies by a generator on time are the service's.
    in_time = next_level([], replace(slow, late_ms=1.0), RampSettings(Objective(95, 50)))
    assert isinstance(in_time, Done)
    assert "without load p95 is 159 ms" in in_time.why


def test_too_little_gives_no_fit() -> None:
    alone = Baseline((10.0,) * 5)
    assert fit_queue([level(20), level(40)], alone) is None
