"""The `gpuscale` command: what runs, and how every way it can end looks to a user."""

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec

from gpuscale.base.errors import BugError, ConfigError, GpuscaleError, QueryError, UsageError
from gpuscale.cli.exits import BUG, NO, WRONG_INPUT, leaves

_INTERRUPTED = 130
"""What shells and typer say of a command that SIGINT ended."""
COMPLETING = "_GPUSCALE_COMPLETE"
"""Variable that a shell's completion sets."""
_DEBUG = "--debug"
_DEBUG_VARIABLE = "GPUSCALE_DEBUG"
_EXTRAS = {
    "h2": "kubernetes", "google": "keda", "grpc": "keda", "pynvml": "nvidia", "amdsmi": "amd",
    "numpy": "plan", "numba": "plan", "joblib": "plan",
    "pyarrow": "parquet", "mcp": "mcp",
    "hdrh": "load", "httptools": "load", "uvloop": "load", "opentelemetry": "otlp",
}  # fmt: skip
"""Packages that come with an extra only, by the name that they are imported by."""


def main() -> None:
    """Run the command line: exit 0 done, 1 the answer is no or a part failed, 2 wrong input, 70 a bug.

    Nothing leaves a trace on the terminal, unless `--debug` stands anywhere among the words.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # A shell closed it, as by `>&-`, and the next file would take its number.
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115, PTH123 - as long as the process
    words, is_debugging = _without_debug(sys.argv[1:])
    code = 0
    try:
        if not (_is_agent_run(words) or _is_agent_alone(words) or _is_server_run(words)):
            code = _run_typer(words)
    except BrokenPipeError:
        _drop_output()  # the reader has closed the pipe
        code = NO
    except KeyboardInterrupt:
        code = _INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the boundary that no error passes
        if is_debugging:
            import traceback

            traceback.print_exc()
        code = _report(error, is_debugging=is_debugging)
    try:
        sys.stdout.flush()
    except OSError as error:  # the disk may be full
        _drop_output()
        if not code and not isinstance(error, BrokenPipeError):
            _print(f"can't write the output: {error.strerror}")
        code = code or NO
    if code:
        sys.exit(code)


def _drop_output() -> None:
    """Discard the rest of the output, as Python would report a second error at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run_typer(words: Sequence[str]) -> int:
    import typer

    from gpuscale.cli.registry import app

    if COMPLETING in os.environ:
        from typer import completion

        completion.completion_init()  # type: ignore[attr-defined]  # public, but not in __all__
    # typer does not export this class.
    usage_error: type[Exception] = typer.BadParameter.__bases__[0]
    try:
        return int(app(list(words), prog_name="gpuscale", standalone_mode=False) or 0)
    except typer.Abort as abort:
        # typer takes every EOFError for Ctrl-D at a prompt, even one from a truncated file.
        if isinstance(abort.__cause__, EOFError):
            raise abort.__cause__ from None
        _print("aborted")
        return NO
    except usage_error as error:
        from gpuscale.cli.usage import usage_text

        if text := usage_text(error, words):  # empty if the help was printed
            _print(text)
        return WRONG_INPUT if words else 0


def _is_agent_run(words: Sequence[str]) -> bool:
    """Run the node agent if the arguments ask for just that, without the memory that typer needs."""
    if words[:1] != ["exporter"] or find_spec("gpuscale.cli.servers.agent") is None:
        return False
    from gpuscale.cli.servers import agent

    texts = agent.given_texts(words[1:])
    if texts is None:
        return False
    agent.run(texts)
    return True


def _is_agent_alone(words: Sequence[str]) -> bool:
    """Handle other arguments in an installation with only the node agent."""
    if find_spec("typer") is not None and find_spec("gpuscale.cli.registry") is not None:
        return False
    from gpuscale.cli.servers import agent_alone

    agent_alone.run(words)
    return True


def _is_server_run(words: Sequence[str]) -> bool:
    """Run the metrics API or the scaler if the arguments ask for just that, without loading typer."""
    if words[:1] not in (["metrics-api"], ["scaler"]) or COMPLETING in os.environ:
        return False
    from gpuscale.cli.servers import scaling, serving

    server = serving if words[0] == "metrics-api" else scaling
    texts = server.given_texts(words[1:])
    if texts is None:
        return False
    server.run(texts)
    return True


def _without_debug(words: Sequence[str]) -> tuple[list[str], bool]:
    """Return the arguments without --debug, and whether it was given; the agent has its own --debug."""
    is_debugging = _DEBUG in words or bool(os.environ.get(_DEBUG_VARIABLE))
    if words[:1] == ["exporter"]:
        return list(words), is_debugging
    return [word for word in words if word != _DEBUG], is_debugging


def _report(error: Exception, *, is_debugging: bool) -> int:
    """Print an error, and return the exit code."""
    errors = list(leaves(error))
    unexpected = [
        each for each in errors if isinstance(each, BugError) or not isinstance(each, GpuscaleError)
    ]
    if not unexpected:
        for each in errors:
            _print(str(each))
        return max(_code(each) for each in errors)
    first = unexpected[0]
    if isinstance(first, ModuleNotFoundError) and not (first.name or "gpuscale").startswith(
        "gpuscale"
    ):
        extra = _EXTRAS.get(str(first.name).split(".")[0])
        wanted = f"'gpuscale[{extra}]'" if extra else "--force-reinstall gpuscale"
        _print(f"found no Python package {first.name}; install it with: pip install {wanted}")
        return WRONG_INPUT
    if isinstance(first, OSError) and first.strerror:
        where = f"{first.filename}: " if first.filename else ""
        _print(f"{where}{first.strerror}")
        return NO
    _print(f"unexpected {type(first).__name__}: {first}")
    advice = "" if is_debugging else f"run it again with {_DEBUG} for the whole trace, and "
    _print(f"this is a bug in gpuscale: {advice}please report it{_where_to_report()}")
    return BUG


def _where_to_report() -> str:
    from importlib.metadata import PackageNotFoundError, metadata

    try:
        links = metadata("gpuscale").get_all("Project-URL") or []
    except PackageNotFoundError:
        return ""
    return "".join(f" at {link.partition(', ')[2]}" for link in links if link.startswith("Issues,"))


def _code(error: Exception) -> int:
    if isinstance(error, ConfigError | UsageError | QueryError):
        return WRONG_INPUT
    from gpuscale.cli.options.cluster import CouldNotLookError

    return WRONG_INPUT if isinstance(error, CouldNotLookError) else NO


def _print(text: str) -> None:
    for line in text.splitlines() or [""]:
        print(f"gpuscale: {line}", file=sys.stderr)


if __name__ == "__main__":
    main()
