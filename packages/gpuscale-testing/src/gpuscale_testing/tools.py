"""Builds and finds what cluster tests need: `python -m gpuscale_testing.tools`.

That is the programs of a control plane, and other projects' definitions.

Exit codes: 0 done or found, 1 not there or can't be built, 2 wrong input.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from gpuscale.base.errors import GpuscaleError, UnavailableError, UsageError
from gpuscale_testing.programs import building, fetching, toolset
from gpuscale_testing.programs.definitions import (
    Definitions,
    find_definitions,
    missing_definitions,
    pinned_definitions,
)
from gpuscale_testing.programs.toolset import TOOLS, Tool

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Build or find etcd, the Kubernetes control plane, prometheus-adapter, KEDA, Prometheus' PromQL "
    "engine and judges of nodes, and fetch or find the definitions of Prometheus Operator, KEDA, "
    "cert-manager, Karpenter and eksctl, for tests.",
)

Names = Annotated[
    list[str] | None,
    typer.Argument(
        help="Programs, such as kube-apiserver, and definitions, such as keda; none means all "
        "but KEDA's three programs, which take 8 minutes or more by themselves, and judges."
    ),
]


@app.command()
def build(names: Names = None) -> None:
    """Build and fetch what is not there in its pinned version; 5 to 10 minutes on two cores, once."""
    known = [*_usual(), *pinned_definitions()]
    wanted = [_named(name) for name in names] if names else known
    building.build([each for each in wanted if isinstance(each, Tool)], _say)
    fetching.fetch([each for each in wanted if isinstance(each, Definitions)], _say)
    _say(f"programs and definitions are in {toolset.cache_folder()}")


@app.command()
def find(
    name: Annotated[str, typer.Argument(help="A program, such as etcd, or definitions.")],
) -> None:
    """Print the path of one program, or the folder of definitions; exit code 1 if it is not there."""
    typer.echo(_found(_named(name)))


@app.command()
def where() -> None:
    """List all programs and definitions with version and path.

    Exit code 1 if one is not there that `build` without names gets.
    """
    for tool in TOOLS:
        _line(tool.name, toolset.pinned_version(tool), _place(tool))
    for each in pinned_definitions():
        _line(each.name, each.version, _place(each))
    if toolset.missing([tool.name for tool in _usual()]) or missing_definitions():
        raise typer.Exit(1)


def _usual() -> list[Tool]:
    return [tool for tool in TOOLS if not tool.apart]


def _named(name: str) -> Tool | Definitions:
    known: tuple[Tool | Definitions, ...] = (*TOOLS, *pinned_definitions())
    for each in known:
        if each.name == name:
            return each
    names = ", ".join(each.name for each in known)
    raise UsageError(f"found the program or definitions {name!r}, expected one of {names}")


def _found(wanted: Tool | Definitions) -> Path:
    if isinstance(wanted, Tool):
        return toolset.find(wanted.name)
    return find_definitions(wanted.name)


def _place(wanted: Tool | Definitions) -> str:
    try:
        return str(_found(wanted))
    except UnavailableError:
        tools = [wanted] if isinstance(wanted, Tool) else []
        return f"not there; {toolset.build_command(tools)} gets it"


def _line(name: str, version: str, place: str) -> None:
    typer.echo(f"{name:<24} {version:<9} {place}")


def _say(line: str) -> None:
    typer.echo(line, err=True)


def main() -> None:
    """Run the command line; errors that gpuscale knows are one line, not a trace."""
    try:
        app()
    except UsageError as error:
        _say(f"Error: {error}")
        sys.exit(2)
    except GpuscaleError as error:
        _say(f"Error: {error}")
        sys.exit(1)


if __name__ == "__main__":
    main()
