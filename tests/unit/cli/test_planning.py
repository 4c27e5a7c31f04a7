"""The Python API of simulations and searches, and the example notebook."""

import json
import math
from pathlib import Path

import pytest

import gpuscale
from gpuscale.base.errors import UsageError
from gpuscale.lab.scenarios import find_setup
from gpuscale.lab.sim.simulation import simulate
from gpuscale.planning import Simulation, Tuning

NOTEBOOK = Path(__file__).parents[3] / "examples" / "plan_a_service.ipynb"


@pytest.fixture(scope="module")
def run() -> Simulation:
    """Return a short run."""
    return gpuscale.simulate("ack-bert-quick")


@pytest.fixture(scope="module")
def found() -> Tuning:
    """Return a small search."""
    return gpuscale.tune("ack-bert-quick", policies=(), tries=8)


def test_a_simulation_is_that_of_the_engine(run):
    assert run.document == simulate(find_setup("ack-bert-quick"))
    assert gpuscale.simulate("ack-bert-quick", seed=5).document["seed"] == 5


def test_other_speeds_and_settings_are_asked_for_by_name():
    fluid = gpuscale.simulate("ack-bert-quick", fidelity="fluid", settings=["spec.duration=2m"])
    assert fluid.summary["duration"] == 120
    with pytest.raises(gpuscale.UsageError, match="expected exact or fluid"):
        gpuscale.simulate("ack-bert-quick", fidelity="quick")  # type: ignore[arg-type]


def test_a_search_has_rows_and_settings(found):
    assert [row["name"] for row in found.document["rows"]] == ["today", "tuned"]
    assert found.settings == found.document["rows"][1]["settings"]
    assert any("too short to hold days back" in each for each in found.said)
    with pytest.raises(gpuscale.UsageError, match="expected a scenario or a demand"):
        gpuscale.tune()


def test_details_are_kept_where_they_are_asked_for(monkeypatch):
    monkeypatch.setattr("gpuscale.lab.sim.simulation.MAX_VALUES", 3)
    few = gpuscale.simulate("ack-bert-quick", settings=["spec.duration=2m"])
    assert "more than 3 values" in few.document["leftOut"]
    all_of_it = gpuscale.simulate("ack-bert-quick", settings=["spec.duration=2m"], details=True)
    assert "leftOut" not in all_of_it.document
    assert few.document["series"].keys() < all_of_it.document["series"].keys()


def test_the_node_pool_is_searched_unless_told_otherwise():
    with_pool, without = (
        gpuscale.tune("eks-vision-quick", policies=(), tries=8, nodes=nodes)
        for nodes in (True, False)
    )
    assert with_pool.document["nodePool"]["rows"][-1]["name"] == "with nodes"
    assert without.document["nodePool"] is None


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("tries", 0, "1 to 1,000,000"),
        ("held_back_percent", 100, "1 to 90"),
        ("seed", -1, "0 or more"),
        ("start_up_s", math.nan, "0.001 to 2,678,400"),
        ("price_per_hour", math.inf, "0 to 1,000,000"),
    ],
)
def test_a_number_out_of_its_limits_is_named(name, value, expected):
    with pytest.raises(UsageError, match=f"^{name}: found {value}, expected {expected}$"):
        gpuscale.tune("ack-bert", **{name: value})


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_data_frames_have_a_column_for_each_series_and_a_row_for_each_policy(package, run, found):
    pytest.importorskip(package)
    series, rows = (getattr(each, f"to_{package}")() for each in (run, found))
    assert list(series.columns) == list(run.document["series"])
    assert list(series["t"]) == run.document["series"]["t"]
    assert list(rows["name"]) == ["today", "tuned"]
    assert list(rows["settings.target"])[1] == found.settings["target"]


def test_a_package_that_is_missing_is_named(run, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "polars", None)
    with pytest.raises(gpuscale.UsageError, match="pip install polars"):
        run.to_polars()


def test_a_notebook_shows_the_page_in_a_frame(run, found):
    for each in (run, found):
        shown = each._repr_html_()
        assert shown.startswith('<iframe srcdoc="&lt;!doctype html&gt;')
        assert shown.count("<") == 2


def test_the_example_notebook_runs_from_its_first_cell_to_its_last(capsys):
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    codes = ["".join(each["source"]) for each in cells if each["cell_type"] == "code"]
    names: dict[str, object] = {}
    for code in codes:
        exec(compile(code, str(NOTEBOOK), "exec"), names)
    assert "today" in capsys.readouterr().out
    assert isinstance(names["found"], Tuning)
    assert [each["outputs"] for each in cells if each["cell_type"] == "code"] == [[]] * len(codes)
