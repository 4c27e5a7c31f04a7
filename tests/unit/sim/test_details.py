"""Series of single pods and GPUs are kept while they are few, and none of them is left where they are not."""

import pytest

from gpuscale.base.pages.timeline import SeriesRecorder
from gpuscale.lab.scenarios import find_setup
from gpuscale.lab.sim import simulation
from gpuscale.lab.sim.document.details import Details
from gpuscale.lab.sim.simulation import simulate


def recorded(most: int | None) -> tuple[SeriesRecorder, Details]:
    recorder = SeriesRecorder()
    details = Details(recorder, most)
    for t, values in enumerate(
        ({"gpu/a": 1.0, "pod/x": 1.0}, {"gpu/a": 2.0}, {"gpu/a": 3.0, "pod/y": 3.0})
    ):
        recorder.add(float(t), {"load": t, **details.kept(values)})
    return recorder, details


@pytest.mark.parametrize("most", [5, None])  # 2 + 1 + 2 values
def test_as_many_as_allowed_are_kept(most) -> None:
    recorder, details = recorded(most)
    _, _, series = recorder.series()
    assert series == {
        "gpu/a": [1.0, 2.0, 3.0],
        "load": [0, 1, 2],
        "pod/x": [1.0, None, None],
        "pod/y": [None, None, 3.0],
    }
    assert details.left_out == ""


@pytest.mark.parametrize(("most", "names"), [(4, 3), (2, 2), (0, 2)])
def test_one_more_and_all_are_forgotten_but_the_others_stay(most, names) -> None:
    recorder, details = recorded(most)
    assert recorder.series() == (0, [0.0, 1.0, 2.0], {"load": [0, 1, 2]})
    assert details.left_out == f"series of {names} pods and GPUs have more than {most} values"


def test_a_run_with_too_many_says_so_and_keeps_all_else(monkeypatch) -> None:
    monkeypatch.setattr(simulation, "MAX_VALUES", 1)
    setup = find_setup("ack-bert-quick")
    whole, cut = simulate(setup, details=True), simulate(setup)
    assert str(cut.pop("leftOut")).endswith(" pods and GPUs have more than 1 values")
    series = whole["series"]
    assert isinstance(series, dict)
    kept = {name: values for name, values in series.items() if name[:4] not in ("gpu/", "pod/")}
    assert len(kept) < len(series)
    assert cut == {**whole, "series": kept}
