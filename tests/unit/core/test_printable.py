"""Text from outside, fit for a terminal."""

import pytest

from gpuscale.base.words import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, größer, 数", "plain, größer, 数"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\tb\nc\rd", "a\\tb\\nc\\rd"),
        ("\u202eback", "\\u202eback"),
        ("\ud800", "\\ud800"),
    ],
)
def test_what_a_terminal_would_act_on_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown
