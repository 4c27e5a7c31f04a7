"""The page of signals has every signal, with its series and target, as `make reference` writes it."""

import pytest

from gpuscale.signals import SIGNALS, by_family
from signals_reference import PAGE, with_tables

TEXT = PAGE.read_text()


def test_the_page_is_current() -> None:
    assert with_tables(TEXT) == TEXT, "out of date: run make reference"


@pytest.mark.parametrize("name", SIGNALS)
def test_each_signal_has_its_row(name: str) -> None:
    signal = SIGNALS[name]
    series = ", ".join(f"`{each}`" for each in signal.spellings)
    target = f"{signal.target:g} {signal.unit}"
    assert f"| `{name}` | {signal.kind} | {series} | {target} | {signal.what} |" in TEXT


def test_each_server_has_its_release_and_what_it_needs() -> None:
    for family, _ in by_family():
        assert f"### {family.title}\n" in TEXT
        assert family.needs in TEXT
        if family.name != "gpu":
            assert f"Names are those of {family.version}" in TEXT
