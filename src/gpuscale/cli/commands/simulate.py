"""`gpuscale simulate`: a scenario in virtual time."""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuscale.cli.files import check_writable, write_files
from gpuscale.cli.progress import PATIENCE_S
from gpuscale.cli.scenarios import PrometheusRules, find_setup, shipped_names
from gpuscale.cli.texts import Output, deprecated, print_document
from gpuscale.core.errors import UsageError

if TYPE_CHECKING:
    from rich.progress import Progress

_SUFFIXES = (".json", ".html")
_STDOUT = "-"


def simulate(
    scenario: Annotated[
        str | None,
        typer.Argument(help="A shipped scenario's name, or a file.", autocompletion=shipped_names),
    ] = None,
    *,
    output: Annotated[
        Output,
        typer.Option("--output", "-o", help="What is printed: the summary or the whole run."),
    ] = Output.TEXT,
    output_files: Annotated[
        list[str] | None,
        typer.Option(
            "--output-file",
            metavar="FILE",
            help="Write the run to a file: .json its document, .html a report. May be given again.",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(metavar="N", help="Seed of this run, instead of the scenario's.", min=0),
    ] = None,
    prometheus_rules: PrometheusRules = None,
    list_scenarios: Annotated[
        bool, typer.Option("--list", help="List the scenarios that ship with gpuscale.")
    ] = False,
    json_file: Annotated[str | None, typer.Option("--json", metavar="FILE", hidden=True)] = None,
    html_file: Annotated[str | None, typer.Option("--html", metavar="FILE", hidden=True)] = None,
) -> None:
    """Run a scenario in virtual time: hours in seconds, the same seed the same bytes.

    Example:  gpuscale simulate ack-bert --output-file run.html
    """
    if list_scenarios:
        print("\n".join(shipped_names()))
        return
    if scenario is None:
        raise typer.BadParameter(
            f"name a file or one of: {', '.join(shipped_names())}", param_hint="SCENARIO"
        )
    output, files, prints_html = _old_options(
        output, _files(output_files or ()), json_file, html_file
    )
    check_writable(files, "--output-file")
    document = _run(scenario, seed, prometheus_rules or ())
    write_files({name: _text(document, suffix) for name, suffix in files.items()})
    if prints_html:
        print(_text(document, ".html"), end="")
    elif output is not Output.TEXT:
        print_document(document, output)
    else:
        _show(document)


def _files(names: Sequence[str]) -> dict[str, str]:
    """Return the files to write and what each is to hold, as its suffix says."""
    files = {name: Path(name).suffix.lower() for name in names}
    for name, suffix in files.items():
        if suffix not in _SUFFIXES:
            expected = "a name that ends in .json or .html"
            raise UsageError(f"--output-file: found {name!r}, expected {expected}")
    return files


def _old_options(
    output: Output, files: dict[str, str], json_file: str | None, html_file: str | None
) -> tuple[Output, dict[str, str], bool]:
    """Return what is printed and written when the old spellings count too; the last: print the report."""
    if json_file is not None:
        deprecated("--json", "-o json, or --output-file FILE.json")
    if html_file is not None:
        deprecated("--html", "--output-file FILE.html")
    if json_file == _STDOUT:
        output = Output.JSON
    old = {json_file: ".json", html_file: ".html"}
    named = {name: suffix for name, suffix in old.items() if name not in {None, _STDOUT}}
    return (
        output,
        {**files, **{str(name): suffix for name, suffix in named.items()}},
        html_file == _STDOUT,
    )


def _text(document: Mapping[str, object], suffix: str) -> str:
    if suffix == ".json":
        return json.dumps(document, ensure_ascii=False) + "\n"
    from gpuscale.views.report import render_report

    return render_report(document)


def _run(scenario: str, seed: int | None, rules: Sequence[Path]) -> dict[str, object]:
    from dataclasses import replace

    from gpuscale.sim.simulate import simulate as run

    setup = find_setup(scenario)
    if seed is not None:
        setup = replace(setup, seed=seed)
    if rules:
        from gpuscale.sources.ruler.files import PrometheusRuleFiles

        files = PrometheusRuleFiles(rules, beside=setup.prometheus_rules)
        setup = replace(setup, prometheus_rules=files.groups)
    if not sys.stderr.isatty():
        return run(setup)
    with _Bar() as bar:
        return run(setup, bar.update)


class _Bar(ExitStack):
    """A progress bar on standard error, from the time on that one begins to wonder; gone in the end."""

    def __init__(self) -> None:
        super().__init__()
        self._from_s = time.monotonic() + PATIENCE_S
        self._bar: Progress | None = None

    def update(self, share: float) -> None:
        """Show how much of the work is done, 0 to 1."""
        if self._bar is None and time.monotonic() >= self._from_s:
            from rich.console import Console
            from rich.progress import Progress

            self._bar = self.enter_context(Progress(console=Console(stderr=True), transient=True))
            self._bar.add_task("simulating", total=1.0)
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=share)


def _show(document: dict[str, object]) -> None:
    from gpuscale.views.terminal import summary_tables, summary_text

    if not sys.stdout.isatty():
        print(summary_text(document))
        return
    from rich.console import Console

    console = Console()
    console.print(summary_tables(document, console.width))
