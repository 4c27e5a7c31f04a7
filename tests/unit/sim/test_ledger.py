"""A ledger's days and verdicts, where demand never changes and the twin's pods are demand over target."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from gpuscale.base.pages.columns import markdown
from gpuscale.lab.sim.history import Advice, Recording, Replays, demand_of, ledger_of
from gpuscale.lab.sim.history.ledger import MONTH_HOURS
from gpuscale.lab.sim.history.ledger_shown import ledger_document, ledger_lines
from gpuscale.lab.sim.history.recording import Column, RecordedColumns
from gpuscale.lab.sim.history.writing import plain_rules

START_MS = 1_767_225_600_000
STEP_MS = 3_600_000
METRIC = "DCGM_FI_DEV_GPU_UTIL"
TARGET = f"target/{METRIC}"
BUSY = 4.0
"""GPUs of work, at all times; pods have one."""


def change(at_h: int, target: float) -> dict[str, Any]:
    return {"at": f"{at_h}h", "hpa": "ml/chat", "targets": {METRIC: target}}


def pods_at(target: float) -> int:
    return math.ceil(BUSY * 100 / target)


def recorded(pods: Sequence[float | None]) -> Recording:
    used = tuple(None if each is None else 100 * BUSY / each for each in pods)
    none = (None,) * len(pods)
    return Recording(START_MS, STEP_MS, RecordedColumns(tuple(pods), tuple(pods), used, none, none))


def replays(
    pods: Sequence[float | None], changes: Sequence[Mapping[str, Any]], twin_off: float = 0.0
) -> Replays:
    recording = recorded(pods)
    now = changes[-1]["targets"][METRIC] if changes else 20.0

    def replayed(given: Sequence[Mapping[str, Any]]) -> Column:
        targets = [now] * len(pods)
        for each in given:
            first = int(each["at"].rstrip("hs"))
            targets[first:] = [each["targets"][METRIC]] * (len(pods) - first)
        return tuple(pods_at(each) * (1 + twin_off) for each in targets)

    hpa = {"minReplicas": 1.0, "maxReplicas": 40.0, TARGET: now}
    return Replays(recording, demand_of(recording, 1), 1, hpa, changes, replayed)


def raised(days: int = 5, after: int = 10) -> list[float | None]:
    """Return 20 pods of a day at a target of 20 %, and so many of those after it."""
    return [*[20.0] * 24, *[float(after)] * 24 * (days - 1)]


RAISED = [{**change(0, 20), "at": "0s"}, change(24, 40)]
ADVISED = Advice({TARGET: 40}, 10 * MONTH_HOURS, (9.5 * MONTH_HOURS, 10.5 * MONTH_HOURS), 0.005)


def test_each_day_against_the_maximum_defaults_and_the_settings_before() -> None:
    default = {**change(0, 60), "at": "0s"}
    found = ledger_of("ml/chat", replays(raised(2), RAISED), default)
    first, second = found.days
    # 400 % of work: 20 pods at 20 %, 10 at 40 %, 7 at 60 %; the HPA may have 40.
    assert (first.took, first.at_maximum, first.default, first.before) == (480, 960, 168, 480)
    assert (second.took, second.at_maximum, second.default, second.before) == (240, 960, 168, 480)
    assert (first.begin_s, second.begin_s) == (START_MS // 1000, START_MS // 1000 + 86_400)
    assert found.changed_s == second.begin_s
    assert found.error == 0


def test_hours_without_a_record_count_nowhere() -> None:
    pods = raised(2)
    pods[30:36] = [None] * 6
    second = ledger_of("ml/chat", replays(pods, RAISED)).days[1]
    assert (second.hours, second.took, second.at_maximum) == (18, 180, 720)
    assert second.before == 360


def test_without_a_change_there_is_nothing_before() -> None:
    found = ledger_of("ml/chat", replays([20.0] * 24, []))
    assert (found.days[0].before, found.changed_s, found.outcome) == (None, None, None)


def verdict(replays: Replays, advice: Advice = ADVISED) -> tuple[str, str]:
    outcome = ledger_of("ml/chat", replays, advice=advice).outcome
    assert outcome is not None
    return outcome.verdict, outcome.why


def test_a_promise_that_came_true_is_kept() -> None:
    outcome = ledger_of("ml/chat", replays(raised(), RAISED), advice=ADVISED).outcome
    assert outcome is not None
    assert (outcome.verdict, outcome.came, outcome.promised) == ("kept", 10 * 96, 7300)
    assert outcome.a_month == pytest.approx(7300)
    assert outcome.since_s == START_MS // 1000 + 86_400


def test_less_than_the_least_that_was_promised_is_not_kept() -> None:
    # 20 - 10 pods are 10 GPUs, 1.5 below the interval.
    more = Advice({TARGET: 40}, 12 * MONTH_HOURS, (11.5 * MONTH_HOURS, 13 * MONTH_HOURS), 0.005)
    kind, why = verdict(replays(raised(), RAISED), more)
    assert (kind, why) == (
        "not kept",
        "1,095 GPU-hours a month below the least that was promised",
    )


def test_what_is_within_the_error_of_the_twin_is_not_sure() -> None:
    # The twin has a tenth more pods throughout; 22 - 14 are 8 GPUs, and a tenth of 22 may be 2.2 more.
    kind, why = verdict(replays([*[20.0] * 24, *[10.0] * 24 * 3, *[22.0] * 24], RAISED, 0.1))
    assert kind == "not sure"
    assert "within the twin's error" in why


def test_full_gpus_may_have_made_somebody_wait() -> None:
    # 4 pods are full: 16 GPUs are saved, and more may have been asked for.
    kind, why = verdict(replays(raised(after=4), RAISED))
    assert (kind, why) == (
        "not sure",
        "it saves that; GPUs were full in 100.00% of the time, and more may have waited",
    )


def test_days_before_the_next_change_count_alone() -> None:
    pods = [*[20.0] * 24, *[10.0] * 24 * 3, *[16.0] * 24]
    outcome = ledger_of("ml/chat", replays(pods, [*RAISED, change(96, 25)]), advice=ADVISED).outcome
    assert outcome is not None
    assert (outcome.verdict, outcome.came) == ("kept", 10 * 72)


@pytest.mark.parametrize(
    ("case", "advice", "told"),
    [
        (replays(raised(3), RAISED), ADVISED, ("too early", "48 known hours since, expected 72")),
        (
            replays([20.0] * 96, []),
            ADVISED,
            ("not taken", f"advised {TARGET} 40; it is 20"),
        ),
        (
            replays([20.0] * 96, []),
            Advice({TARGET: 20}, 1, None, 0.005),
            ("not known", "the HPA had these settings when the range began: ask for a longer one"),
        ),
        (
            replays([20.0] * 96, []),
            Advice({"target/queue": 20}, 1, None, 0.005),
            ("not known", "nothing recorded says target/queue"),
        ),
    ],
)
def test_what_can_not_be_said_is_not_guessed(case, advice, told) -> None:
    assert verdict(case, advice) == told


def test_text_markdown_and_document_say_the_same() -> None:
    found = [ledger_of("ml/chat", replays(raised(), RAISED), advice=ADVISED, gpu_hour=2)]
    lines = list(ledger_lines(found, {"ml/cpu": "no HPA scales it"}, "USD"))
    assert lines[1].split() == ["2026-01-01", "480.0", "960.00", "USD", "960.0", "-", "480.0"]
    assert lines[-1] == "Not looked at: ml/cpu: no HPA scales it"
    table = list(ledger_lines(found, {}, "USD", markdown))
    assert table[2] == "| 2026-01-01 | 480.0 | 960.00 USD | 960.0 | - | 480.0 |"
    document: dict[str, Any] = ledger_document(found, {}, "USD")
    (of_workload,) = document["workloads"]
    assert of_workload["days"][0]["money"] == 960
    assert of_workload["advice"]["verdict"] == "kept"


def hpa(*metrics: str) -> dict[str, Any]:
    of = [{"type": "Pods", "pods": {"metric": {"name": each}}} for each in metrics]
    return {"kind": "HorizontalPodAutoscaler", "spec": {"metrics": of}}


def test_series_of_gpus_have_plain_rules_and_others_have_none() -> None:
    assert f"seriesQuery: {METRIC}{{" in (plain_rules([hpa(METRIC)]) or "").replace("'", "")
    assert plain_rules([hpa(METRIC, "queue")]) is None
    assert plain_rules([]) is None
