"""`gpuscale init`: a values file, from flags, questions, and what a cluster shows."""

import asyncio
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from gpuscale.base.errors import ConfigError, UsageError
from gpuscale.base.whole_files import write_file
from gpuscale.cli.commands.install import open_client
from gpuscale.cli.interview.answers import (
    checked_answers,
    read_combined,
    read_provider,
    read_selected_pods,
    read_service_account,
    read_signal,
    read_wake,
    read_workload,
)
from gpuscale.cli.interview.interview import IMAGE_HINT, interview
from gpuscale.cli.interview.signals import signal_data, signal_list
from gpuscale.cli.options.cluster import (
    PANEL,
    Context,
    CouldNotLookError,
    Kubeconfig,
    cluster_settings,
    kubectl_options,
    looking,
)
from gpuscale.cli.progress import working
from gpuscale.cli.texts import Output, deprecated, print_document
from gpuscale.ops.providers import NAMES as PROVIDERS
from gpuscale.ops.providers import either

if TYPE_CHECKING:
    from gpuscale.kube.client import KubeClient
    from gpuscale.ops.install import Answers
    from gpuscale.ops.install.cluster import Detected

T = TypeVar("T")

_SCALING, _PLACE, _METRICS = "What is scaled", "Where it runs", "Where values come from"
"""Panels of the help."""
_STDOUT = "-"
_LIST = "list"
_FORMATS = {"yaml": Output.YAML, "json": Output.JSON}
_INTERRUPTED = 130
_GLANCE_S = 5.0
"""How long a cluster may take to answer that was not asked for."""


class AutoscalerChoice(Enum):
    """What scales."""

    HPA = "hpa"
    KEDA = "keda"


class SourceChoice(Enum):
    """Where the metrics API gets its values."""

    PROMETHEUS = "prometheus"
    STREAMS = "streams"


def init(
    *,
    workload: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="What to scale, as [KIND/][NAMESPACE/]NAME: vision-api, statefulset/ml/llm.",
            rich_help_panel=_SCALING,
        ),
    ] = None,
    provider: Annotated[
        str | None,
        typer.Option(metavar="NAME", help=f"{either(*PROVIDERS)}.", rich_help_panel=_PLACE),
    ] = None,
    image: Annotated[
        str | None,
        typer.Option(
            metavar="REPOSITORY:TAG",
            help="Image of the node agent and the metrics API, in a registry of yours; make image builds it.",
            rich_help_panel=_PLACE,
        ),
    ] = None,
    image_present: Annotated[
        bool,
        typer.Option(
            "--image-present",
            help="Every node has the image already, as after kind load docker-image; none is pulled.",
            rich_help_panel=_PLACE,
        ),
    ] = False,
    signal: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="What to scale on, such as gpu-utilization, vllm-waiting or epp-queue; list shows them all.",
            show_default="gpu-utilization",
            rich_help_panel=_SCALING,
        ),
    ] = None,
    of: Annotated[
        str | None,
        typer.Option(
            "--of",
            metavar="NAME",
            help="Of signals of gateways, proxies and queues: the InferencePool, the Ingress, the queue.",
            rich_help_panel=_SCALING,
        ),
    ] = None,
    query: Annotated[
        str | None,
        typer.Option(
            metavar="PROMQL",
            help="In place of a signal: PromQL of the whole load, of which each pod takes the target.",
            rich_help_panel=_SCALING,
        ),
    ] = None,
    combined: Annotated[
        str | None,
        typer.Option(
            metavar="NAME=SIGNAL:THRESHOLD,...",
            help="In place of a signal: several limits as one metric, such as "
            "vllm_fullness=vllm-waiting:5,vllm-kv-cache:0.9; the fullest counts, and 1 is full.",
            rich_help_panel=_SCALING,
        ),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(
            metavar="N",
            help="Per pod, in the signal's unit.",
            show_default="the signal's",
            rich_help_panel=_SCALING,
        ),
    ] = None,
    min_replicas: Annotated[
        int | None,
        typer.Option(metavar="N", help="Fewest pods.", show_default="1", rich_help_panel=_SCALING),
    ] = None,
    wake: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE/NAME|PROMQL",
            help="What wakes it from 0 pods, such as llm-d-queue/POOL or rabbitmq/QUEUE, or PromQL above 0.",
            rich_help_panel=_SCALING,
        ),
    ] = None,
    max_replicas: Annotated[
        int | None,
        typer.Option(metavar="N", help="Most pods.", show_default="10", rich_help_panel=_SCALING),
    ] = None,
    autoscaler: Annotated[
        AutoscalerChoice | None,
        typer.Option(help="What scales.", show_default="hpa", rich_help_panel=_SCALING),
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Of the installation.",
            show_default="gpuscale",
            rich_help_panel=_PLACE,
        ),
    ] = None,
    prometheus_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Of a Prometheus that is there, as pods see it.",
            rich_help_panel=_METRICS,
        ),
    ] = None,
    source: Annotated[
        SourceChoice | None,
        typer.Option(
            help="Where the metrics API gets its values; streams are the node agents', without a Prometheus.",
            show_default="what fits the cluster",
            rich_help_panel=_METRICS,
        ),
    ] = None,
    scrape_pods: Annotated[
        bool,
        typer.Option(
            "--scrape-pods",
            help="With streams: scrape pods annotated prometheus.io/scrape.",
            rich_help_panel=_METRICS,
        ),
    ] = False,
    scrape_selected_pods: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAMESPACE/LABELS:PORT",
            help="With streams: scrape these pods, which need no annotation, such as ml/app=vllm:8000; "
            "NAMESPACE and LABELS may be *. May be given several times.",
            show_default="none",
            rich_help_panel=_METRICS,
        ),
    ] = None,
    otlp_client: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAMESPACE/NAME",
            help="With streams: take OTLP metrics that this service account pushes; one replica of the "
            "metrics API then runs. May be given several times.",
            show_default="none",
            rich_help_panel=_METRICS,
        ),
    ] = None,
    resource_metrics: Annotated[
        bool | None,
        typer.Option(
            help="Serve metrics.k8s.io too, for kubectl top, from a Prometheus that scrapes the kubelets.",
            show_default="where nobody does, and such a Prometheus is found",
            rich_help_panel=_METRICS,
        ),
    ] = None,
    rules_configmaps: Annotated[
        str | None,
        typer.Option(
            metavar="SELECTOR",
            help="Labels of ConfigMaps with rules of teams, such as gpuscale.dev/rules=true.",
            show_default="that, where there are some",
            rich_help_panel=_METRICS,
        ),
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    look: Annotated[
        bool | None,
        typer.Option(
            "--cluster/--no-cluster",
            help="Look at the cluster, only reading, to propose what fits it.",
            show_default="if there is one that answers",
            rich_help_panel=PANEL,
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="yaml|json",
            help="Print the values instead of writing a file.",
        ),
    ] = None,
    output_file: Annotated[
        str, typer.Option("--output-file", metavar="FILE", help="Where the values are written.")
    ] = "values.yaml",
    force: Annotated[bool, typer.Option("--force", help="Write over a file.")] = False,
) -> None:
    """Write a values file: from flags, on a terminal from questions too, and from what the cluster shows.

    Example:  gpuscale init --workload vision-api --provider eks --image registry.example.com/gpuscale:0.1.0

    Example:  gpuscale init --signal list

    Example:  gpuscale init
    """
    from gpuscale.cli.interview.questions import NoAnswerError
    from gpuscale.ops.install import Answers, reasons

    if signal == _LIST:
        if output in _FORMATS:
            print_document(signal_data(), _FORMATS[output])
        else:
            print(signal_list(), end="")
        return
    if query is not None and signal is not None:
        raise UsageError("--query: expected no --signal beside it")
    if combined is not None and (signal, of, query) != (None, None, None):
        raise UsageError("--combined: expected neither --signal, --of nor --query beside it")
    if query is not None and target is None and not sys.stdin.isatty():
        raise UsageError("--query: expected --target beside it, what each pod takes of the load")
    form, path = _destination(output, output_file)
    if path is not None:
        _check_place(path, force=force)
    answers = Answers(
        workload=None if workload is None else _read("--workload", read_workload, workload),
        signal=None if signal is None else _read("--signal", read_signal, signal),
        of=of,
        query=query,
        combined=None if combined is None else _read("--combined", read_combined, combined),
        target=target,
        min_replicas=min_replicas,
        max_replicas=max_replicas,
        wake=None if wake is None else _read("--wake", read_wake, wake),
        provider=None if provider is None else _read("--provider", read_provider, provider),
        autoscaler=None if autoscaler is None else autoscaler.value,
        namespace=namespace,
        image=None if image is None else _read("--image", _image, image),
        is_image_present=image_present,
        prometheus_url=prometheus_url,
        source=None if source is None else source.value,
        scrapes_pods=scrape_pods,
        selected_pods=tuple(
            _read("--scrape-selected-pods", read_selected_pods, each)
            for each in scrape_selected_pods or ()
        ),
        otlp_clients=tuple(
            _read("--otlp-client", read_service_account, each) for each in otlp_client or ()
        ),
        serves_resource=resource_metrics,
        team_rules=rules_configmaps,
    )
    try:
        found = _looked_at(kubeconfig, context, look)
        for line in reasons(found):
            _tell(f"found {line}")
        answers = interview(answers, found) if sys.stdin.isatty() else _complete(answers, found)
    except (KeyboardInterrupt, NoAnswerError) as error:
        print(file=sys.stderr)
        _tell("stopped; nothing was written")
        raise typer.Exit(_INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1) from None
    data, text, notes = checked_answers(answers, found)
    for note in notes:
        _tell(note)
    if path is None:
        print_document(data, form) if form is Output.JSON else print(text, end="")
        return
    write_file(path, text, "--output-file")
    _tell(f"wrote {path}; next:")
    name, options = shlex.quote(str(path)), kubectl_options(kubeconfig, context)
    for command, what in (
        (f"render {name}", "what would be applied"),
        (f"install {name}{options} --dry-run server", "the cluster checks it"),
        (f"install {name}{options}", "applies it"),
    ):
        print(f"  gpuscale {command}  # {what}", file=sys.stderr)


def _check_place(path: Path, *, force: bool) -> None:
    """Raise if a file can't be written, before the user answers questions.

    Raises:
        UsageError: it is there already, or there is no folder for it.
    """
    if path.is_dir() or not path.parent.is_dir():
        raise UsageError(f"--output-file: found {path}, expected a file in a folder that is there")
    if path.exists() and not force:
        raise UsageError(
            f"{path} is there already; --force writes over it, --output-file names another"
        )


def _destination(output: str | None, output_file: str) -> tuple[Output, Path | None]:
    """Return the output's format and file; None is standard output."""
    if output in _FORMATS:
        return _FORMATS[output], None
    if output not in (None, Output.TEXT.value):
        new = "-o yaml" if output == _STDOUT else f"--output-file {output}"
        deprecated(f"--output {output}", new)
        output_file = output
    return Output.YAML, None if output_file == _STDOUT else Path(output_file)


def _looked_at(kubeconfig: Path | None, context: str | None, look: bool | None) -> "Detected":
    """Return the facts about the cluster; none if there is no cluster and it was not asked for.

    Raises:
        CouldNotLookError, UsageError: it was asked for, and can't be reached or read.
    """
    from gpuscale.kube.client import KubeClient, cluster_name
    from gpuscale.ops.install.cluster import Detected

    is_named = look or kubeconfig is not None or context is not None
    if look is False:
        if is_named:
            raise UsageError("--no-cluster: expected neither --kubeconfig nor --context beside it")
        return Detected()
    try:
        cluster = cluster_settings(kubeconfig, context)
    except UsageError:
        if is_named:
            raise
        return Detected()
    try:
        client = open_client if is_named else KubeClient
        if not is_named:
            cluster = replace(cluster, timeout_s=_GLANCE_S)
        print(f"gpuscale: looking at cluster {cluster_name(cluster)}", file=sys.stderr)
        with looking(), working("looking at the cluster"):
            return asyncio.run(_detected(client(cluster)))
    except (CouldNotLookError, ConfigError, UsageError) as error:
        if is_named:
            raise
        print(f"gpuscale: proposing without a cluster: {error}", file=sys.stderr)
        return Detected()


async def _detected(client: "KubeClient") -> "Detected":
    from gpuscale.ops.install.cluster import detect

    async with client:
        await client.check_ready()
        return await detect(client)


def _read(flag: str, read: Callable[[str], T], text: str) -> T:
    try:
        return read(text)
    except ValueError as error:
        raise UsageError(f"{flag}: {error}") from None


def _image(text: str) -> str:
    """Return an image's reference, if it is one."""
    from gpuscale.ops.install import parse_image

    parse_image(text)
    return text


def _complete(answers: "Answers", found: "Detected") -> "Answers":
    """Return the answers, completed by unambiguous facts about the cluster.

    Raises:
        UsageError: something is missing, and there is no terminal to ask at.
    """
    workload = answers.workload
    if workload is None and len(found.workloads) == 1:
        workload = found.workloads[0]
    missing = []
    if workload is None:
        names = [f"{each.kind.lower()}/{each.namespace}/{each.name}" for each in found.workloads]
        seen = f", such as {', '.join(names[:5])}" if names else ""
        missing.append(f"--workload: expected what to scale{seen}")
    if answers.provider is None and found.provider is None:
        missing.append(f"--provider: expected one of: {', '.join(PROVIDERS)}")
    if answers.image is None:
        missing.append(f"--image: expected an image that nodes can pull; {IMAGE_HINT}")
    if missing:
        raise UsageError("\n".join(missing))
    return replace(answers, workload=workload)


def _tell(line: str) -> None:
    print(f"gpuscale: {line}", file=sys.stderr)
