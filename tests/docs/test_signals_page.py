"""The page of signals has every signal, with its series and target."""

from pathlib import Path

import pytest

from gpuscale.signals import SIGNALS, by_family

PAGE = (Path(__file__).parents[2] / "docs" / "signals.md").read_text()


@pytest.mark.parametrize("name", SIGNALS)
def test_each_signal_has_its_row(name: str) -> None:
    signal = SIGNALS[name]
    series = ", ".join(f"`{each}`" for each in signal.spellings)
    target = f"{signal.target:g} {signal.unit}"
    assert f"| `{name}` | {signal.kind} | {series} | {target} | {signal.what} |" in PAGE


def test_each_server_has_its_release_and_what_it_needs() -> None:
    for family, _ in by_family():
        assert f"### {family.title}\n" in PAGE
        assert family.needs in PAGE
        if family.name != "gpu":
            assert f"Names are those of {family.version}" in PAGE
