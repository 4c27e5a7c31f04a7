# mypy: disable-error-code="arg-type"
"""The tables of the page on sizing are those of the latest results."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.delitem(sys.modules, "harness", raising=False)
    path = ROOT / "benchmarks" / "sizing_tables.py"
    spec = importlib.util.spec_from_file_location("sizing_tables", path)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


@pytest.fixture
def parts(tables):
    return json.loads(tables.RESULT.read_text())["parts"]


def test_the_tables_are_those_of_the_results(tables) -> None:
    page = tables.PAGE.read_text()
    assert tables.updated(page) == page


def test_each_part_was_measured_at_two_sizes_or_more(tables, parts) -> None:
    assert parts.keys() <= tables.COLUMNS.keys()
    assert all(len(measured["rows"]) > 1 for measured in parts.values())


def test_the_page_says_what_was_not_measured_yet(tables, parts) -> None:
    page = tables.PAGE.read_text()
    for part in tables.COLUMNS:
        begin = page.index(tables.head(part))
        written = page[begin : page.index(tables.END, begin)]
        assert ("Not measured yet" in written) == (part not in parts), part


def test_a_page_without_a_place_for_a_table_is_refused(tables) -> None:
    with pytest.raises(ValueError, match=r"sizing\.md: found no line"):
        tables.updated("# Sizing")


def test_values_have_their_units(tables) -> None:
    row = {"rate": 66.0, "cores": 0.081, "answered_per_s": 65.9, "prometheus_queries_per_s": 3.84}
    assert tables.shown(row, "hpas", ",.0f") == "990"
    assert tables.shown({"rate": 0.0}, "hpas", ",.0f") == "flat out"
    assert tables.shown(row, "cores", ".2f cores") == "0.08 cores"
    assert tables.shown(row, "prometheus_queries_per_s", ".1f/s") == "3.8/s"
    # 30 000 series every 15 s are 2 000 samples a second, of 500 000 that a core takes.
    scraped = {"series": 30_000.0, "samples_per_cpu_s": 500_000.0}
    assert tables.value_of(scraped, "cores") == pytest.approx(0.004)
