# mypy: disable-error-code="assignment"
"""Every way a command can end looks like ours: no trace, one voice, a code that says whose fault it is."""

import errno
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from gpuscale.base.errors import (
    BugError,
    ConfigError,
    NotFoundError,
    Problem,
    UnavailableError,
    UsageError,
)
from gpuscale.cli import main, registry
from gpuscale.cli.options.cluster import CouldNotLookError


def run(monkeypatch, capsys, *words):
    """Return exit code and lines on standard error."""
    monkeypatch.setattr(sys, "argv", ["gpuscale", *words])
    try:
        main.main()
        code = 0
    except SystemExit as end:
        code = end.code
    return code, capsys.readouterr().err.splitlines()


def ending_with(monkeypatch, capsys, error, *words):
    def fail(*_, **__) -> None:
        raise error

    monkeypatch.setattr(registry, "app", fail)
    return run(monkeypatch, capsys, *words)


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (UsageError("a"), 2, "gpuscale: a"),
        (ConfigError(Problem("f", 1, "x", "1", "2")), 2, "gpuscale: f:1: x: found 1, expected 2"),
        (NotFoundError("a"), 1, "gpuscale: a"),
        (UnavailableError("a"), 1, "gpuscale: a"),
        (CouldNotLookError("a"), 2, "gpuscale: a"),
        (
            PermissionError(errno.EACCES, "Permission denied", "/x"),
            1,
            "gpuscale: /x: Permission denied",
        ),
        (OSError(errno.ENOSPC, "No space left on device"), 1, "gpuscale: No space left on device"),
        (ExceptionGroup("g", [UnavailableError("a"), UsageError("b")]), 2, "gpuscale: a"),
    ],
)
def test_errors_are_a_line_and_a_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error, code: int, line: str
) -> None:
    found, lines = ending_with(monkeypatch, capsys, error)
    assert (found, lines[0]) == (code, line)


@pytest.mark.parametrize("error", [ZeroDivisionError("x"), BugError("x"), MemoryError("x")])
def test_what_nobody_expected_is_a_bug_and_shows_no_trace(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error
) -> None:
    code, lines = ending_with(monkeypatch, capsys, error)
    assert code == 70
    assert lines[0] == f"gpuscale: unexpected {type(error).__name__}: x"
    assert lines[1].startswith("gpuscale: this is a bug in gpuscale: run it again with --debug")
    assert "/issues" in lines[1]
    assert len(lines) == 2


@pytest.mark.parametrize("how", ["flag", "variable"])
def test_the_trace_is_there_for_who_wants_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    words = ["up", "--debug"] if how == "flag" else ["up"]
    if how == "variable":
        monkeypatch.setenv("GPUSCALE_DEBUG", "1")
    code, lines = ending_with(monkeypatch, capsys, ZeroDivisionError("x"), *words)
    assert code == 70
    assert lines[0] == "Traceback (most recent call last):"


@pytest.mark.parametrize(
    ("name", "extra"),
    [
        ("h2", "kubernetes"),
        ("google.protobuf", "keda"),
        ("grpc", "keda"),
        ("pynvml", "nvidia"),
    ],
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, extra: str
) -> None:
    code, lines = ending_with(monkeypatch, capsys, ModuleNotFoundError("no", name=name))
    assert (code, lines) == (
        2,
        [
            f"gpuscale: found no Python package {name}; install it with: pip install 'gpuscale[{extra}]'"
        ],
    )


def test_an_installation_with_a_part_missing_is_no_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, lines = ending_with(monkeypatch, capsys, ModuleNotFoundError("no", name="yaml"))
    assert code == 2
    assert lines == [
        "gpuscale: found no Python package yaml; install it with: pip install --force-reinstall gpuscale"
    ]


def test_ctrl_c_is_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert ending_with(monkeypatch, capsys, KeyboardInterrupt()) == (130, [])


def test_the_flag_for_traces_may_stand_anywhere(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """But not where a command has one of its own."""
    assert main._without_debug(["simulate", "a", "--debug"]) == (["simulate", "a"], True)
    assert main._without_debug(["--debug", "lint"]) == (["lint"], True)
    assert main._without_debug(["exporter", "--debug"]) == (["exporter", "--debug"], True)
    assert main._without_debug(["lint", "f"]) == (["lint", "f"], False)


@pytest.mark.parametrize(
    ("words", "line", "help_of"),
    [
        (["simulate", "--sed=1"], "No such option: --sed; did you mean --seed?", "simulate"),
        (["simulate", "--seed=x", "a"], "--seed: found 'x', expected a whole number", "simulate"),
        (
            ["up", "--port", "0", "--port", "70000"],
            "--port: found '70000', expected 65535 or less",
            "up",
        ),
        (["render"], "missing argument VALUES", "render"),
        (["metrics-api", "why"], "missing argument OBJECT", "metrics-api why"),
        (
            ["doctor", "-o", "xml"],
            "--output / -o: found 'xml', expected one of: text, json, yaml, sarif, junit",
            "doctor",
        ),
    ],
)
def test_wrong_words_are_told_without_a_box(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    line: str,
    help_of: str,
) -> None:
    code, found = run(monkeypatch, capsys, *words)
    assert (code, found) == (2, [f"gpuscale: {line}", f"gpuscale: see gpuscale {help_of} --help"])


def test_nothing_at_all_is_a_question_for_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, capsys) == (0, [])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no full device")
@pytest.mark.parametrize("words", [["simulate", "--list"], ["simulate", "ack-bert", "-o", "json"]])
def test_output_that_does_not_fit_the_disk_is_one_error(words) -> None:
    command = [sys.executable, "-m", "gpuscale.cli.main", *words]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("gpuscale: ")
    assert line.endswith("No space left on device")


def test_whoever_reads_the_output_may_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `gpuscale simulate ack-bert | head -1` does."""
    words = [sys.executable, "-m", "gpuscale.cli.main", "simulate", "ack-bert", "-o", "json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.read(1)
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()


def test_the_end_of_a_file_inside_a_command_is_no_ctrl_d(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """typer takes every EOFError for the end of what is typed at a prompt."""

    app = typer.Typer()

    @app.command()
    def read_a_cut_file() -> None:
        raise EOFError("marshal data too short")

    monkeypatch.setattr(registry, "app", app)
    code, lines = run(monkeypatch, capsys)
    assert code == 70
    assert "gpuscale: unexpected EOFError: marshal data too short" in lines
