"""The state of a search: one that was stopped goes on, and finds the same."""

import itertools
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy
import pytest

from gpuscale.base.errors import ConfigError, UsageError
from gpuscale.lab.plan.promise import Promise
from gpuscale.lab.plan.tuning.contender import Contender
from gpuscale.lab.plan.tuning.search import ReplayCase, Search
from gpuscale.lab.tuning.state import TuningState
from gpuscale.triggers.policies.hpa import HPA_ON_DEMAND
from gpuscale.triggers.policies.replaying import ReplaySettings

STEPS = 3 * 1440
DEMAND = 8 + 6 * numpy.sin(2 * numpy.pi * numpy.arange(STEPS) / 1440)
QUESTION = ReplayCase(DEMAND, ReplaySettings(step_s=60.0, most=50.0), Promise(), seed=3)
ONE = Contender(HPA_ON_DEMAND)


def search_with(state: TuningState, stop_after: int | None = None) -> tuple[Search, int]:
    """Search as far as is wanted; return the search and how many settings were replayed for it."""
    replayed = 0

    def each(trial, batches):
        nonlocal replayed
        for batch in batches:
            replayed += len(batch)
            yield trial(batch)

    search = Search(QUESTION, ONE, each, state.known(ONE))
    for _ in itertools.islice(search.run(48), stop_after):
        pass
    return search, replayed


def test_a_search_that_was_stopped_goes_on_and_finds_the_same(tmp_path):
    path = str(tmp_path / "state.json")
    whole, all_of_them = search_with(TuningState(None, QUESTION))
    first = TuningState(path, QUESTION)
    _, before = search_with(first, stop_after=4)
    first.save(now=True)
    second = TuningState(path, QUESTION)
    again, after = search_with(second)
    assert again.best.values.tolist() == whole.best.values.tolist()
    kept = [each.values.tolist() for each in whole.whole]
    assert [each.values.tolist() for each in again.whole] == kept
    assert before + after == all_of_them
    assert 0 < before < all_of_them


def test_a_state_of_other_contenders_stays_in_the_file(tmp_path):
    path = str(tmp_path / "state.json")
    other = ONE.keeping(["target"])
    first = TuningState(path, QUESTION)
    Search(QUESTION, other, map, first.known(other))
    first.save(now=True)
    second = TuningState(path, QUESTION)
    Search(QUESTION, ONE, map, second.known(ONE))
    second.save(now=True)
    third = TuningState(path, QUESTION)
    assert (len(third.known(ONE)), len(third.known(other))) == (1, 1)


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[1]", '{"question":"x","outcomes":{}}', '{"question":1,"outcomes":{}}', "\0"],
)
def test_a_file_that_is_no_state_of_this_search_is_refused(tmp_path, text):
    path = tmp_path / "state.json"
    path.write_text(text)
    with pytest.raises(
        ConfigError, match="expected the state of this search; remove it to start over"
    ):
        TuningState(str(path), QUESTION)
    assert path.read_text() == text


def test_a_folder_that_is_gone_is_said(tmp_path):
    state = TuningState(str(tmp_path / "gone" / "state.json"), QUESTION)
    state.known(ONE)
    with pytest.raises(UsageError, match="--state: can't write"):
        state.save(now=True)


# Takes some ten seconds: a state is written every five.
def test_ctrl_c_shows_the_best_so_far_and_keeps_the_state(tmp_path):
    rows = "".join(f"{hour * 3600},{16 if hour % 24 >= 12 else 4}\n" for hour in range(7 * 24))
    (tmp_path / "demand.csv").write_text("time,demand\n" + rows)
    command = [
        *(
            sys.executable,
            "-m",
            "gpuscale.cli.main",
            "tune",
            "--demand=demand.csv",
            "--start-up=2m",
        ),
        *("--state=state.json", "--tries=200000", "--promise=short=3%", "--policy=hpa-demand"),
    ]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as running:
        state = Path(tmp_path / "state.json")
        until = time.monotonic() + 100
        while not state.exists() and time.monotonic() < until:
            time.sleep(0.1)
        running.send_signal(signal.SIGINT)
        shown, _ = running.communicate(timeout=60)
    assert running.returncode == 0
    assert "The search was stopped before its end; this is the best until then." in shown
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []
