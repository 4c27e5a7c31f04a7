"""The command line where typer and the other commands' packages are not installed."""

import sys

import pytest

from gpuscale import __version__
from gpuscale.agent.exporter.settings import FLAGS
from gpuscale.cli import main


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setitem(sys.modules, "typer", None)  # None: not to be imported
    monkeypatch.setattr(sys, "argv", ["gpuscale", *words])
    try:
        main.main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def test_help_shows_every_flag_with_its_variable(monkeypatch, capsys) -> None:
    assert run(monkeypatch, "exporter", "--help") == 0
    text = capsys.readouterr().out
    assert [name for name in FLAGS if f"  --{name}" not in text] == []
    assert "Variable: DCGM_EXPORTER_LISTEN." in " ".join(text.split())


def test_version_is_printed(monkeypatch, capsys) -> None:
    assert run(monkeypatch, "--version") == 0
    assert capsys.readouterr().out == f"gpuscale {__version__}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("simulate",), "found 'simulate', but only the node agent is installed here"),
        (("metrics-api", "--source", "streams"), "found 'metrics-api', but only the node agent"),
        (("exporter", "--gpo", "x"), "found '--gpo', expected a flag; gpuscale exporter --help"),
        (("exporter", "--gpu"), "--gpu: found no value, expected TEXT"),
        (("exporter", "word"), "found 'word', expected a flag"),
    ],
)
def test_what_is_no_run_of_the_agent_is_refused(monkeypatch, capsys, words, message: str) -> None:
    assert run(monkeypatch, *words) == 2
    assert capsys.readouterr().err.startswith(f"gpuscale: {message}")


@pytest.mark.parametrize("words", [(), ("--help",)])
def test_help_says_where_the_rest_is(monkeypatch, capsys, words) -> None:
    assert run(monkeypatch, *words) == 0
    assert "pip install gpuscale" in capsys.readouterr().out
