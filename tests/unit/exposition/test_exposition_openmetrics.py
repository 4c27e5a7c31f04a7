"""OpenMetrics text: names stay what they are, counters and units only where the name says so."""

import pytest

from gpuscale.base.exposition.families import Family, Sample
from gpuscale.base.exposition.openmetrics import render_openmetrics

ONE = (Sample((("gpu", "0"),), 1),)


def text(name, type_, samples=ONE, help_="Help."):
    return render_openmetrics([Family(name, type_, help_, samples)]).splitlines()


def test_text_ends_with_its_end_mark() -> None:
    assert render_openmetrics([]) == "# EOF\n"
    assert render_openmetrics([Family("a", "gauge", "", ONE)]).endswith("# EOF\n")


def test_counter_whose_name_ends_in_total_is_one_under_its_base_name() -> None:
    assert text("collects_total", "counter") == [
        "# TYPE collects counter",
        "# HELP collects Help.",
        'collects_total{gpu="0"} 1',
        "# EOF",
    ]


def test_counter_of_another_name_keeps_it_and_is_of_unknown_type() -> None:
    assert text("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "counter")[::2] == [
        "# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION unknown",
        'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="0"} 1',
    ]


def test_counter_keeps_its_name_where_its_base_name_is_taken() -> None:
    families = [Family("a", "gauge", "", ONE), Family("a_total", "counter", "", ONE)]
    assert "# TYPE a_total unknown\n" in render_openmetrics(families)


@pytest.mark.parametrize(
    ("name", "type_", "told"),
    [
        ("collect_duration_seconds", "gauge", "# UNIT collect_duration_seconds seconds"),
        ("cpu_seconds_total", "counter", "# UNIT cpu_seconds seconds"),
        ("memory_bytes", "gauge", "# UNIT memory_bytes bytes"),
    ],
)
def test_unit_is_told_where_the_name_ends_with_it(name: str, type_: str, told: str) -> None:
    assert text(name, type_)[1] == told


@pytest.mark.parametrize("name", ["seconds", "gpu_up", "DCGM_FI_DEV_FB_USED_BYTES"])
def test_other_names_have_no_unit_line(name: str) -> None:
    assert not any(line.startswith("# UNIT") for line in text(name, "gauge"))


def test_untyped_is_called_unknown() -> None:
    assert text("a", "untyped")[0] == "# TYPE a unknown"


def test_help_escapes_quotes_as_well() -> None:
    assert text("a", "gauge", help_='say "a\\b"\n')[1] == '# HELP a say \\"a\\\\b\\"\\n'


def test_family_without_help_has_no_help_line() -> None:
    assert text("a", "gauge", help_="") == ["# TYPE a gauge", 'a{gpu="0"} 1', "# EOF"]
