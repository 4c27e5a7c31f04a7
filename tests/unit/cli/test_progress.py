"""The line of progress at a terminal."""

import pytest

from gpuscale.cli.progress import hide_line, show_line


@pytest.mark.parametrize(
    ("columns", "shown"), [("80", "12 s  a line of progress"), ("10", "12 s  a …")]
)
def test_a_line_never_wraps_and_replaces_the_one_before(
    capsys, monkeypatch, columns, shown
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    show_line("12 s  a line of progress")
    assert capsys.readouterr().err == f"\r\033[K{shown}"


def test_nothing_is_taken_away_where_there_is_no_terminal(capsys) -> None:
    hide_line()
    assert capsys.readouterr().err == ""
