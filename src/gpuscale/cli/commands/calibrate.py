"""`gpuscale calibrate`: the threshold of a replica, found by measuring it."""

from typing import Annotated

import typer

from gpuscale.base.errors import UsageError
from gpuscale.cli.commands.calibration.inputs import (
    check_files,
    check_targets,
    read_objective,
    read_replica,
    read_signals,
    reader_opener,
)
from gpuscale.cli.commands.calibration.outcome import CalibratedWorkload, Files, finish
from gpuscale.cli.commands.calibration.running import run_calibration
from gpuscale.cli.options.cluster import PANEL, Context, Kubeconfig, cluster_settings
from gpuscale.cli.options.durations import seconds_of
from gpuscale.cli.options.requests import (
    CaFile,
    Data,
    Headers,
    Insecure,
    Method,
    Timeout,
    request_of,
)
from gpuscale.cli.texts import Output

_FILES, _SIGNALS, _RAMP = "Files", "Signals", "Ramp"
MOST_RATE = 100_000.0
_MOST_S = 24 * 3600.0


def calibrate(
    url: Annotated[
        str | None,
        typer.Argument(help="Of one replica, such as http://host/predict?query=Music."),
    ] = None,
    *,
    promised: Annotated[
        list[str],
        typer.Option(
            "--promise",
            metavar="p95=200ms|errors=1%",
            help="What users were promised: a percentile, and errors.",
        ),
    ],
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Page with the replica's metrics.", rich_help_panel=_SIGNALS
        ),
    ] = None,
    prometheus: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Prometheus with them.", rich_help_panel=_SIGNALS),
    ] = None,
    workload: Annotated[
        str | None,
        typer.Option(
            metavar="[NAMESPACE/]NAME",
            help="Deployment on a cluster: checks that it has one replica and keeps it, and reads the "
            "metrics of its HPA from the metrics API. Changes nothing.",
            rich_help_panel=PANEL,
        ),
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    signal: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]PROMQL",
            help="A candidate to scale on; several are compared.",
            rich_help_panel=_SIGNALS,
        ),
    ] = None,
    headroom: Annotated[
        float,
        typer.Option(
            metavar="PERCENT",
            help="Left free in the target, for load that grows.",
            min=0,
            max=90,
            rich_help_panel=_SIGNALS,
        ),
    ] = 0.0,
    first: Annotated[
        float | None,
        typer.Option(
            "--from",
            metavar="RATE",
            help="First rate.",
            min=0.001,
            max=MOST_RATE,
            rich_help_panel=_RAMP,
            show_default="a quarter of what single requests give",
        ),
    ] = None,
    max_rate: Annotated[
        float,
        typer.Option(
            metavar="RATE", help="Never more.", min=0.001, max=MOST_RATE, rich_help_panel=_RAMP
        ),
    ] = 10_000.0,
    hold: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Of a level, at most.",
            rich_help_panel=_RAMP,
            show_default="20s, 60s with --prometheus",
        ),
    ] = None,
    duration: Annotated[
        str,
        typer.Option("--for", metavar="DURATION", help="In all, at most.", rich_help_panel=_RAMP),
    ] = "15m",
    checks: Annotated[
        bool,
        typer.Option(
            "--check/--no-check", help="Hold the prediction against a step.", rich_help_panel=_RAMP
        ),
    ] = True,
    seed: Annotated[
        int, typer.Option(metavar="N", help="Of the arrivals.", min=0, rich_help_panel=_RAMP)
    ] = 1,
    startup: Annotated[
        str, typer.Option(metavar="DURATION", help="From the decision to a replica that serves.")
    ] = "60s",
    step: Annotated[
        float,
        typer.Option(
            metavar="TIMES", help="The step to predict, from one replica's load.", min=1.1, max=1000
        ),
    ] = 2.0,
    name: Annotated[
        str, typer.Option(metavar="NAME", help="Of the Deployment, in files.")
    ] = "calibrated",
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", metavar="NAME", help="Of the Deployment, in files.")
    ] = "default",
    max_replicas: Annotated[
        int, typer.Option(metavar="N", help="Of the HPA.", min=1, max=1000)
    ] = 10,
    metric: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="What the metrics API calls the signal.",
            show_default="the signal's name",
        ),
    ] = None,
    method: Method = "GET",
    headers: Headers = None,
    data: Data = None,
    timeout: Timeout = "10s",
    ca_file: CaFile = None,
    is_insecure: Insecure = False,
    hpa: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write an HPA.", rich_help_panel=_FILES)
    ] = None,
    scaled_object: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write a ScaledObject of KEDA.", rich_help_panel=_FILES),
    ] = None,
    scenario: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Write a scenario for simulate, with this service.",
            rich_help_panel=_FILES,
        ),
    ] = None,
    page: Annotated[
        str | None,
        typer.Option(
            "--html", metavar="FILE", help="Write a page with the curve.", rich_help_panel=_FILES
        ),
    ] = None,
    output_file: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write the result as JSON.", rich_help_panel=_FILES),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace files that exist.", rich_help_panel=_FILES)
    ] = False,
    output: Annotated[
        Output, typer.Option("--output", "-o", help="What is printed.")
    ] = Output.TEXT,
) -> None:
    """Find the highest load that one replica can take, and the value of a signal that says so.

    Sends an open loop at growing rates, closes in on the rate at which the promise is missed, fits a queue to
    what it measured, and checks what that predicts. Ctrl-C ends it early, with what was measured. Send load
    only to a replica that is yours, and that no autoscaler multiplies meanwhile.

    Exit code 0: a limit was found, and the check agrees; 1: it wasn't, it doesn't, or there was no check;
    2: the input is wrong.

    Example:  gpuscale calibrate http://pod:8000/predict?query=Music --promise p95=200ms

    Example:  gpuscale calibrate http://pod/ --promise p95=1s --metrics http://pod/metrics --signal load
    """
    objective = read_objective(promised)
    replica, cluster = None, None
    if workload is not None:
        cluster = cluster_settings(kubeconfig, context)
        replica = read_replica(workload, cluster, (metrics, prometheus, signal))
        name, namespace = replica.workload, replica.namespace
    url = url or (replica.url if replica is not None else "")
    if not url:
        raise UsageError(
            "found no URL, expected the replica's, such as http://host/predict?query=Music"
        )
    signals = read_signals(
        signal or [], metrics, prometheus, () if replica is None else replica.metrics
    )
    files = Files(hpa, scaled_object, scenario, page, output_file)
    check_files(files.named, force=force)
    check_targets(hpa, scaled_object, signals, prometheus, metric)
    total_s = seconds_of("--for", duration)
    if total_s > _MOST_S:
        raise UsageError(f"--for: found {duration!r}, expected a day at most")
    hold_s = seconds_of("--hold", hold or ("60s" if prometheus else "20s"))
    request = request_of(
        url, method, headers or [], data, timeout, ca_file, is_insecure=is_insecure
    )
    place = CalibratedWorkload(
        name, namespace, max_replicas, metric, prometheus, seconds_of("--startup", startup), step
    )
    from gpuscale.load.calibrate import RampSettings
    from gpuscale.load.calibrate.measuring import SessionSettings

    settings = SessionSettings(
        ramp=RampSettings(
            objective, first, max_rate=max_rate, hold_s=hold_s, min_hold_s=min(3.0, hold_s)
        ),
        total_s=total_s,
        headroom=headroom / 100,
        checks=checks,
        seed=seed,
    )
    reader = reader_opener((metrics, prometheus), signals, replica, cluster)
    found = run_calibration(request, settings, reader)
    finish(url, found, place, files, signals, headroom / 100, output, checks=checks)
