"""docs/beside.md has the figures of the result files."""

import pytest

from beside_reference import PAGE, PAIRS, with_tables


def test_the_figures_are_those_of_the_result_files() -> None:
    text = PAGE.read_text()
    assert with_tables(text) == text, "run make reference"
    assert text.count("<!-- measured: ") == len(PAIRS)


@pytest.mark.parametrize("name", ["metrics_api", "scaler_1000_quiet"])
def test_losses_are_shown(name: str) -> None:
    """Each of these files has two figures at least in which the other program needs less."""
    table = with_tables(f"<!-- measured: {name} -->\n<!-- end of measured -->\n")
    rows = [row.split("|") for row in table.splitlines() if row.startswith("| ")]
    ratios = [float(row[4]) for row in rows if row[1].strip("- ")]
    assert len(ratios) == len(PAIRS[name])
    assert sum(each > 1 for each in ratios) >= 2
