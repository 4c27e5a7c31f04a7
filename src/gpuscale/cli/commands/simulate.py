"""`gpuscale simulate`: a scenario in virtual time."""

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from gpuscale.base.whole_files import Content, check_writable
from gpuscale.cli.files import output_formats, write_files
from gpuscale.cli.options.instance_types import InstanceTypes
from gpuscale.cli.progress import PATIENCE_S
from gpuscale.cli.recordings import (
    AdapterRules,
    CaFile,
    DemandQuery,
    FromFile,
    FromPrometheus,
    Manifests,
    Range,
    Recorded,
    Replay,
    SaveScenario,
    Step,
    TokenFile,
    Until,
    UtilizationQuery,
    WorkloadName,
)
from gpuscale.cli.scenarios import PrometheusRules, scenario_help
from gpuscale.cli.texts import Output, deprecated, print_document
from gpuscale.lab import find_setup, shipped_names

if TYPE_CHECKING:
    from rich.progress import Progress

    from gpuscale.lab.sim.scenario import Setup


class FidelityChoice(StrEnum):
    """How a scenario is computed."""

    EXACT = "exact"
    LAGGED = "lagged"
    """An older name of `exact`, from when formulas had to be asked for."""
    FLUID = "fluid"


@dataclass(frozen=True, slots=True)
class _How:
    """How to run a setup."""

    seed: int | None
    rules: tuple[Path, ...]
    fidelity: FidelityChoice
    details: bool
    series: bool
    """Whether anything shows them."""


_STDOUT = "-"
_EVENTS = ".events.parquet"
_SUFFIXES = (".json", ".html", _EVENTS, ".parquet")


def simulate(
    scenario: Annotated[
        str | None,
        typer.Argument(help=scenario_help(), autocompletion=shipped_names),
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
            help="Write the run to a file: .json its document, .html a report, .parquet its series, "
            ".events.parquet its events. May be given again.",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(metavar="N", help="Seed of this run, instead of the scenario's.", min=0),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="PATH=VALUE",
            # An 80-column terminal would cut off a path in this text.
            help="Set a field of the scenario for this run, as in the example above; a rate there scales a "
            "load of several rates to that highest one. May be given again.",
        ),
    ] = None,
    instance_types: InstanceTypes = None,
    prometheus_rules: PrometheusRules = None,
    fidelity: Annotated[
        FidelityChoice,
        typer.Option(
            metavar="[exact|fluid]",
            help="How metrics reach the HPAs: as each hop shows them, or in steps of whole services, for "
            "large fleets.",
        ),
    ] = FidelityChoice.EXACT,
    details: Annotated[
        bool,
        typer.Option(
            "--details",
            help="Keep the series of each pod and GPU, also where they are more than 20 million values.",
        ),
    ] = False,
    from_prometheus: FromPrometheus = None,
    from_file: FromFile = None,
    workload: WorkloadName = None,
    range_: Range = "14d",
    until: Until = None,
    step: Step = "15s",
    demand_query: DemandQuery = None,
    utilization_query: UtilizationQuery = None,
    manifests: Manifests = None,
    rules: AdapterRules = None,
    save_scenario: SaveScenario = None,
    prometheus_token_file: TokenFile = None,
    prometheus_ca_file: CaFile = None,
    list_scenarios: Annotated[
        bool, typer.Option("--list", help="List the scenarios that ship with gpuscale.")
    ] = False,
    json_file: Annotated[str | None, typer.Option("--json", metavar="FILE", hidden=True)] = None,
    html_file: Annotated[str | None, typer.Option("--html", metavar="FILE", hidden=True)] = None,
) -> None:
    """Run a scenario in virtual time: hours in seconds, the same seed the same bytes.

    Example:  gpuscale simulate ack-bert --output-file run.html

    Example:  gpuscale simulate eks-vision --set 'spec.workloads[0].load.rate=20'

    Example:  gpuscale simulate --from-prometheus http://prometheus:9090 --workload default/chat --range 14d
    """
    if list_scenarios:
        print("\n".join(shipped_names()))
        return
    recorded = Recorded(
        from_prometheus,
        from_file,
        workload,
        range_,
        until,
        step,
        demand_query,
        utilization_query,
        tuple(manifests or ()),
        rules,
        save_scenario,
        prometheus_token_file,
        prometheus_ca_file,
    )
    is_replay = recorded.check(scenario)
    if is_replay and instance_types is not None:
        raise typer.BadParameter("a recording has no instance types", param_hint="--instance-types")
    if scenario is None and not is_replay:
        raise typer.BadParameter(
            f"name a file or one of: {', '.join(shipped_names())}", param_hint="SCENARIO"
        )
    output, files, prints_html = _old_options(
        output, output_formats(output_files or (), _SUFFIXES), json_file, html_file
    )
    check_writable(files, "--output-file")
    forms = {name: _form(suffix) for name, suffix in files.items()}
    how = _How(
        seed,
        tuple(prometheus_rules or ()),
        fidelity,
        details=details,
        series=is_replay or prints_html or bool(files) or output is not Output.TEXT,
    )
    document = (
        _replay(recorded, settings or (), how)
        if is_replay
        else _run(find_setup(str(scenario), settings or (), instance_types), how)
    )
    write_files({name: form(document) for name, form in forms.items()})
    if prints_html:
        print(_html(document), end="")
    elif output is not Output.TEXT:
        print_document(document, output)
    else:
        _show(document)
        if is_replay:
            from gpuscale.lab.sim.history import text

            print(f"\n{text(cast('Mapping[str, Any]', document['replay']))}")


def _old_options(
    output: Output, files: dict[str, str], json_file: str | None, html_file: str | None
) -> tuple[Output, dict[str, str], bool]:
    """Return the outputs with the deprecated options included; the last item: whether to print the report."""
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


def _form(suffix: str) -> Callable[[Mapping[str, object]], Content]:
    """Return a function that renders a document; a missing package raises here, before the run."""
    if suffix == ".json":
        return _json
    if suffix == ".html":
        return _html
    from gpuscale.cli.parquet import write_events, write_series

    write = write_events if suffix == _EVENTS else write_series
    return lambda document: partial(write, document)


def _json(document: Mapping[str, object]) -> str:
    return json.dumps(document, ensure_ascii=False) + "\n"


def _html(document: Mapping[str, object]) -> str:
    from gpuscale.lab.views import render_report

    return render_report(document)


def _replay(recorded: Recorded, settings: Sequence[str], how: _How) -> dict[str, object]:
    replay = Replay(recorded, settings)
    replay.save()
    return replay.compared(_run(replay.setup, how))


def _run(setup: "Setup", how: _How) -> dict[str, object]:
    if how.seed is not None:
        setup = replace(setup, seed=how.seed)
    if how.rules:
        from gpuscale.server.sources.ruler import PrometheusRuleFiles

        files = PrometheusRuleFiles(how.rules, beside=setup.prometheus_rules)
        setup = replace(setup, prometheus_rules=files.groups)
    from gpuscale.lab.sim import simulate as run

    with _Bar() as bar:
        document: dict[str, Any] = run(
            setup,
            bar.update if sys.stderr.isatty() else None,
            fidelity=how.fidelity.value,
            details=how.details,
            series=how.series,
            say=partial(print, file=sys.stderr),
        )
    if "leftOut" in document:
        print(f"gpuscale: left out: {document['leftOut']}; --details keeps them", file=sys.stderr)
    if how.fidelity is FidelityChoice.LAGGED and document["fidelity"]["because"]:
        print("gpuscale: simulated exactly, for lack of a formula:", file=sys.stderr)
        for reason in document["fidelity"]["because"]:
            print(f"  {reason}", file=sys.stderr)
    return document


class _Bar(ExitStack):
    """A progress bar on standard error, shown once a run takes long, and removed at its end."""

    def __init__(self) -> None:
        super().__init__()
        self._from_s = time.monotonic() + PATIENCE_S
        self._bar: Progress | None = None

    def update(self, share: float) -> None:
        """Show the done share, from 0 to 1."""
        if self._bar is None and time.monotonic() >= self._from_s:
            from rich.console import Console
            from rich.progress import Progress

            self._bar = self.enter_context(Progress(console=Console(stderr=True), transient=True))
            self._bar.add_task("simulating", total=1.0)
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=share)


def _show(document: dict[str, object]) -> None:
    from gpuscale.lab.views import summary_tables, summary_text

    if not sys.stdout.isatty():
        print(summary_text(document))
        return
    from rich.console import Console

    console = Console()
    console.print(summary_tables(document, console.width))
