"""The page of a calibration: one file, all text escaped, and what was not found is not drawn."""

import xml.etree.ElementTree as ElementTree

from gpuscale.load.calibrate.analysis import Measurements, analyse
from gpuscale.load.calibrate.levels import Baseline, Objective
from gpuscale.load.calibrate.page import curve_svg, render_page
from gpuscale.load.calibrate.queues import SlotQueue
from gpuscale.load.calibrate.ramp import Done
from gpuscale.load.calibrate.report import document, text
from ramps import ramp

OBJECTIVE = Objective(95, 50)


def test_levels_curve_and_marks_are_drawn() -> None:
    found = ramp(SlotQueue(100, 1, 0.01), 10, OBJECTIVE, 1, spread=False)
    measured = Measurements(OBJECTIVE, found.baseline, tuple(found.levels), found.end)
    made = document("http://h/?a=<b>&c", measured, analyse(measured), "it was left out", None)
    svg = ElementTree.fromstring(curve_svg(made))
    kinds = [each.tag for each in svg]
    assert kinds.count("circle") == len(found.levels)
    assert kinds.count("polyline") == 2
    assert [each.get("class") for each in svg if each.tag == "rect"] == ["band"]
    texts = [each.text for each in svg if each.tag == "text"]
    assert any(text and text.startswith("limit ") for text in texts)
    page = render_page(made)
    assert "<b>" not in page
    assert "http://h/?a=&lt;b&gt;&amp;c" in page
    assert "<script" not in page


def test_a_calibration_without_levels_has_a_page_too() -> None:
    measured = Measurements(
        OBJECTIVE, Baseline((80.0, 90.0)), (), Done("no rate keeps it", is_whole=False)
    )
    made = document("http://h/", measured, analyse(measured), "it was left out", None)
    assert "No level was measured" in render_page(made)
    assert "limit" not in made


def test_a_limit_that_no_level_is_beyond_is_at_least_that() -> None:
    found = ramp(SlotQueue(100, 1, 0.01), 10, OBJECTIVE, 1, spread=False)
    kept = tuple(each for each in found.levels if each.keeps(OBJECTIVE))
    end = Done("the time is up", is_whole=False)
    measured = Measurements(OBJECTIVE, found.baseline, kept, end)
    made = document("http://h/", measured, analyse(measured), "it was left out", None)
    assert "high" not in made["limit"]
    assert f"at least {max(each.rate for each in kept):.4g} requests/s" in text(made)
    assert "check      none: it was left out" in text(made)
