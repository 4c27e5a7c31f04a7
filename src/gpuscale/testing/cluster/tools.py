"""Builds and finds the programs of a control plane: `python -m gpuscale.testing.cluster.tools`.

Exit codes: 0 done or found, 1 not there or can't be built, 2 wrong input.
"""

import sys
from typing import Annotated

import typer

from gpuscale.core.errors import GpuscaleError, UnavailableError, UsageError
from gpuscale.testing.cluster import building, toolset

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Build or find etcd, the Kubernetes control plane and prometheus-adapter, for tests.",
)

Names = Annotated[
    list[str] | None, typer.Argument(help="Programs, such as kube-apiserver; none means all.")
]


@app.command()
def build(names: Names = None) -> None:
    """Build what is not there in its pinned version; 5 to 10 minutes on two cores, once."""
    tools = [toolset.tool_named(name) for name in names] if names else list(toolset.TOOLS)
    building.build(tools, _say)
    _say(f"programs are in {toolset.cache_folder()}")


@app.command()
def find(name: Annotated[str, typer.Argument(help="A program, such as etcd.")]) -> None:
    """Print the path of one program; exit code 1 if it is not there."""
    typer.echo(toolset.find(name))


@app.command()
def where() -> None:
    """List all programs with version and path; exit code 1 if one is not there."""
    for tool in toolset.TOOLS:
        typer.echo(f"{tool.name:<24} {toolset.pinned_version(tool):<9} {_place(tool.name)}")
    if toolset.missing([tool.name for tool in toolset.TOOLS]):
        raise typer.Exit(1)


def _place(name: str) -> str:
    try:
        return str(toolset.find(name))
    except UnavailableError:
        return f"not built; {toolset.BUILD_COMMAND} makes it"


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
