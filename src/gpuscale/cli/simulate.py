"""`gpuscale simulate`: a scenario in virtual time."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from gpuscale.cli.scenarios import find_setup, shipped_names


def simulate(
    scenario: Annotated[
        str | None, typer.Argument(help="A shipped scenario's name, or a file.")
    ] = None,
    *,
    seed: Annotated[
        int | None, typer.Option(help="Seed of this run, instead of the scenario's.", min=0)
    ] = None,
    json_file: Annotated[
        str | None,
        typer.Option("--json", metavar="FILE", help="Write the run as JSON; - is standard output."),
    ] = None,
    html_file: Annotated[
        str | None,
        typer.Option("--html", metavar="FILE", help="Write the run as one self-contained page."),
    ] = None,
    list_scenarios: Annotated[
        bool, typer.Option("--list", help="Name the scenarios that ship with gpuscale.")
    ] = False,
) -> None:
    """Run a scenario in virtual time: hours in seconds, the same seed the same bytes.

    Example:  gpuscale simulate ack-bert --json - | jq .summary
    """
    if list_scenarios:
        print("\n".join(shipped_names()))
        return
    if scenario is None:
        raise typer.BadParameter(
            f"name a file or one of: {', '.join(shipped_names())}", param_hint="SCENARIO"
        )
    document = _run(scenario, seed)
    if json_file is not None:
        _write(json_file, json.dumps(document, ensure_ascii=False) + "\n")
    if html_file is not None:
        from gpuscale.views.report import render_report

        _write(html_file, render_report(document))
    if "-" not in {json_file, html_file}:
        _show(document)


def _run(scenario: str, seed: int | None) -> dict[str, object]:
    from dataclasses import replace

    from gpuscale.sim.simulate import simulate as run

    setup = find_setup(scenario)
    if seed is not None:
        setup = replace(setup, seed=seed)
    if not sys.stderr.isatty():
        return run(setup)
    return _with_progress(lambda told: run(setup, told))


def _with_progress(
    work: Callable[[Callable[[float], None]], dict[str, object]],
) -> dict[str, object]:
    """Show a bar on standard error; it goes away when the work is done."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("simulating", total=1.0)
        return work(lambda share: bar.update(task, completed=share))


def _write(name: str, text: str) -> None:
    if name == "-":
        sys.stdout.write(text)
        return
    path = Path(name)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise typer.BadParameter(
            f"can't write {name}: {error.strerror}", param_hint="FILE"
        ) from None
    print(f"wrote {name}", file=sys.stderr)


def _show(document: dict[str, object]) -> None:
    from gpuscale.views.terminal import summary_tables, summary_text

    if not sys.stdout.isatty():
        print(summary_text(document))
        return
    from rich.console import Console

    console = Console()
    console.print(summary_tables(document, console.width))
