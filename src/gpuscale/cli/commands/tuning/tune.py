"""`gpuscale tune`: the settings of an HPA that cost least and keep the promise."""

import json
import os
import sys
from typing import Annotated

import typer

from gpuscale.base.errors import UsageError
from gpuscale.base.promises import promise_terms
from gpuscale.base.text_files import read_text
from gpuscale.base.whole_files import check_writable
from gpuscale.cli.commands.tuning.options import (
    Column,
    Currency,
    DemandFile,
    Deployments,
    Force,
    GpusPerNode,
    GpusPerReplica,
    HeldBack,
    Hpa,
    Keep,
    Lag,
    MetricFull,
    NodePoolToo,
    On,
    OutputFiles,
    Patience,
    Policies,
    PricePerHour,
    Promised,
    SecondsPerRequest,
    Seed,
    StartUp,
    StateFile,
    TimeColumn,
    Tries,
    Workers,
    Write,
    WriteScenario,
)
from gpuscale.cli.exits import NO
from gpuscale.cli.files import output_formats, write_files
from gpuscale.cli.options.durations import seconds_of
from gpuscale.cli.progress import working
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
)
from gpuscale.cli.scenarios import scenario_help
from gpuscale.cli.texts import Output, print_document, printable
from gpuscale.lab import find_setup, shipped_names
from gpuscale.lab.tuning import (
    HELD_BACK_PERCENT,
    LIMITS,
    PROMISE,
    SEED,
    TRIES,
    is_within,
)


def tune(
    scenario: Annotated[
        str | None,
        typer.Argument(help=scenario_help(), autocompletion=shipped_names),
    ] = None,
    *,
    workloads: Deployments = None,
    hpa: Hpa = None,
    metric_full: MetricFull = None,
    demand: DemandFile = None,
    time_column: TimeColumn = "time",
    column: Column = None,
    seconds_per_request: SecondsPerRequest = None,
    start_up: StartUp = None,
    lag: Lag = None,
    patience: Patience = None,
    promised: Promised = None,
    policies: Policies = None,
    tries: Tries = TRIES,
    keep: Keep = None,
    nodes: NodePoolToo = True,
    held_back: HeldBack = HELD_BACK_PERCENT,
    seed: Seed = SEED,
    workers: Workers = None,
    on: On = None,
    state: StateFile = None,
    from_prometheus: FromPrometheus = None,
    from_file: FromFile = None,
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
    gpus_per_replica: GpusPerReplica = None,
    gpus_per_node: GpusPerNode = None,
    price_per_hour: PricePerHour = None,
    currency: Currency = None,
    output: Annotated[
        Output, typer.Option("--output", "-o", help="What is printed.")
    ] = Output.TEXT,
    output_files: OutputFiles = None,
    write: Write = None,
    write_scenario: WriteScenario = None,
    force: Force = False,
) -> None:
    """Find the settings of an HPA that cost least and keep enough pods, and what a better signal would bring.

    Settings are searched on the first days and scored on the last ones.

    Example:  gpuscale tune --demand load.csv --start-up 3m --hpa hpa.yaml --write tuned.yaml

    Example:  gpuscale tune --from-prometheus http://prometheus:9090 --workload default/chat --range 14d
    """
    is_recorded = from_prometheus is not None or from_file is not None
    workload = workloads[0] if workloads else None
    if scenario is None and workloads and len(workloads) > 1:
        found_many = f"found {len(workloads)} without a SCENARIO"
        raise UsageError(f"--workload: {found_many}, expected one, or a scenario with all of them")
    recorded = Recorded(
        from_prometheus,
        from_file,
        workload if is_recorded else None,
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
    recorded.check(scenario)
    if (scenario is not None) + (demand is not None) + is_recorded != 1:
        raise UsageError(
            "expected one of: a SCENARIO, --demand FILE.csv, --from-prometheus URL, --from-file FILE"
        )
    of_a_file = {
        "--time-column": time_column != "time",
        "--column": column is not None,
        "--seconds-per-request": seconds_per_request is not None,
    }
    if demand is None and any(of_a_file.values()):
        names = ", ".join(name for name, is_given in of_a_file.items() if is_given)
        raise UsageError(
            f"found {names} without --demand, expected them beside a demand file alone"
        )
    _check_limits("--metric-full", metric_full)
    _check_limits("--seconds-per-request", seconds_per_request)
    # Before the optional packages are needed: a user without them should learn of a wrong scenario
    # first.
    setup = None if scenario is None else find_setup(scenario)
    from gpuscale.cli.commands.tuning.scenario_writing import scenario_base, scenario_text
    from gpuscale.cli.commands.tuning.together import tune_together
    from gpuscale.cli.commands.tuning.writing import base_of, tuned_text
    from gpuscale.lab.plan.tuning import check_address
    from gpuscale.lab.tuning import (
        Overrides,
        Promise,
        TuningRequest,
        answer,
        manifest_of,
        of_demand,
        of_setup,
        policy_names,
        text_of,
    )

    given = Overrides(
        None if start_up is None else seconds_of("--start-up", start_up),
        None if lag is None else seconds_of("--lag", lag),
        None if patience is None else seconds_of("--patience", patience),
        gpus_per_replica,
        gpus_per_node,
        price_per_hour,
        currency,
        metric_full,
    )
    asked = TuningRequest(
        policy_names(policies),
        Promise(promise_terms("--promise", promised or (PROMISE,))),
        held_back / 100,
        tries,
        seed,
        workers or os.cpu_count() or 1,
        tuple(keep or ()),
        on,
        state,
        # A recording has pods only; its nodes are assumed.
        nodes and scenario is not None,
    )
    files = output_formats(output_files or ())
    check_writable(files, "--output-file")
    if state is not None:
        check_writable([state], "--state")
    if on is not None:
        check_address(on)
    if setup is not None and len(workloads or setup.workloads) > 1:
        beside = {"--hpa": hpa, "--state": state, "--write-scenario": write_scenario}
        if refused := [option for option, value in beside.items() if value is not None]:
            raise UsageError(f"{refused[0]}: found several workloads, expected one with --workload")
        tune_together(
            *(setup, str(scenario), workloads or (), given, asked, output, files, write),
            force=force,
        )
        return
    manifest = None if hpa is None else manifest_of(hpa, read_text(hpa))
    if is_recorded:
        replay = Replay(recorded)
        replay.save()
        found, autoscaler = of_setup(replay.setup, recorded.source, workload, manifest, given)
    elif setup is not None:
        found, autoscaler = of_setup(setup, str(scenario), workload, manifest, given)
    else:
        found, autoscaler = of_demand(
            str(demand), time_column, column, seconds_per_request, manifest, given
        )
    base = None if write is None else base_of(write, autoscaler, manifest, force=force)
    scenario_before = None
    if write_scenario is not None:
        scenario_before = scenario_base(write_scenario, scenario, force=force)
        if found.pool is None or not nodes:
            why = found.without_pool or "there is no node pool that may grow or shrink"
            raise UsageError(f"--write-scenario: found no node pool to search: {why}")
    result = answer(found, autoscaler, asked, working)
    if output is Output.TEXT:
        print("\n".join(map(printable, text_of(result).splitlines())))
    else:
        print_document(result.document, output)
    texts = {name: _text(result.document, suffix) for name, suffix in files.items()}
    choice = result.choice
    if write_scenario is not None and result.pooled is not None:
        choice = result.pooled.choice
    wanted = [each for each in (write_scenario, write) if each is not None]
    if choice.is_gain:
        values = choice.taken.row.settings
        if write_scenario is not None and scenario_before is not None and result.pooled is not None:
            pool = result.pooled.pool
            texts[write_scenario] = scenario_text(write_scenario, scenario_before, pool, values)
        if write is not None and base is not None:
            texts[write] = tuned_text(write, base, autoscaler, values)
    write_files(texts)
    if wanted and not choice.is_gain:
        print(f"gpuscale: nothing to gain, so {' and '.join(wanted)} not written", file=sys.stderr)
        raise typer.Exit(NO)


def _text(document: dict[str, object], suffix: str) -> str:
    if suffix == ".json":
        return json.dumps(document, ensure_ascii=False) + "\n"
    from gpuscale.lab.views import render_tuned

    return render_tuned(document)


def _check_limits(option: str, value: float | None) -> None:
    name = option.removeprefix("--").replace("-", "_")
    if value is not None and not is_within(name, value):
        expected = str(LIMITS[name]).replace("e-0", "e-").replace("e+", "e")
        raise UsageError(f"{option}: found {value:g}, expected {expected}")
