"""`gpuscale init`: a values file, from flags, questions, and what a cluster shows."""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from gpuscale.cli.cluster import (
    PANEL,
    Context,
    CouldNotLookError,
    Kubeconfig,
    cluster_settings,
    looking,
)
from gpuscale.cli.install import open_client
from gpuscale.core.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from gpuscale.install.cluster.detect import Detected, FoundWorkload
    from gpuscale.install.propose import Answers
    from gpuscale.kube.writing import WritingClient


_NONE = "-"
_GLANCE_S = 5.0
"""How long a cluster may take to answer that was not asked for."""


class Autoscaler(Enum):
    """What scales."""

    HPA = "hpa"
    KEDA = "keda"


class Source(Enum):
    """Where the metrics API gets its values."""

    PROMETHEUS = "prometheus"
    STREAMS = "streams"


def init(
    *,
    workload: Annotated[
        str | None,
        typer.Option(
            metavar="[KIND/][NAMESPACE/]NAME",
            help="What to scale, such as vision-api or statefulset/ml/llm.",
        ),
    ] = None,
    provider: Annotated[str | None, typer.Option(help="aks, eks, ack, gke or generic.")] = None,
    signal: Annotated[
        str, typer.Option(help="What to scale on; docs/install.md lists the signals.")
    ] = "gpu-utilization",
    target: Annotated[
        float | None,
        typer.Option(help="Per pod, in the signal's unit.", show_default="the signal's"),
    ] = None,
    min_replicas: Annotated[int, typer.Option(help="Fewest pods.")] = 1,
    max_replicas: Annotated[int, typer.Option(help="Most pods.")] = 10,
    autoscaler: Annotated[Autoscaler, typer.Option(help="What scales.")] = Autoscaler.HPA,
    namespace: Annotated[
        str | None, typer.Option(help="Of the installation.", show_default="gpuscale")
    ] = None,
    image: Annotated[
        str | None, typer.Option(metavar="REPOSITORY:TAG", help="The image that you built.")
    ] = None,
    prometheus_url: Annotated[
        str | None, typer.Option(help="Of a Prometheus that is there, as pods see it.")
    ] = None,
    source: Annotated[
        Source | None,
        typer.Option(
            help="Where the metrics API gets its values; streams are the node agents', without a Prometheus.",
            show_default="what fits the cluster",
        ),
    ] = None,
    scrape_pods: Annotated[
        bool,
        typer.Option(
            "--scrape-pods", help="With streams: scrape pods annotated prometheus.io/scrape."
        ),
    ] = False,
    resource_metrics: Annotated[
        bool | None,
        typer.Option(
            help="Serve metrics.k8s.io too, for kubectl top, from a Prometheus that scrapes the kubelets.",
            show_default="where nobody does, and such a Prometheus is found",
        ),
    ] = None,
    rules_configmaps: Annotated[
        str | None,
        typer.Option(
            metavar="SELECTOR",
            help="Labels of ConfigMaps with rules of teams, such as gpuscale.dev/rules=true.",
            show_default="that, where there are some",
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
        str, typer.Option("--output", "-o", metavar="FILE", help="- prints it.")
    ] = "values.yaml",
    force: Annotated[bool, typer.Option("--force", help="Write over a file.")] = False,
) -> None:
    """Write a values file: from flags, on a terminal from questions too, and from what the cluster shows.

    Example:  gpuscale init --workload vision-api --provider eks --target 60 --max-replicas 12
    """
    from gpuscale.install.fit import reasons
    from gpuscale.install.propose import Answers, proposed

    path = None if output == "-" else Path(output)
    if path is not None and path.exists() and not force:
        raise UsageError(
            f"{output} is there already; --force writes over it, --output names another"
        )
    found = _looked_at(kubeconfig, context, look)
    for line in reasons(found):
        print(f"gpuscale: found {line}", file=sys.stderr)
    answers = Answers(
        workload=None if workload is None else _workload(workload),
        signal=_one_of("--signal", signal, _signals()),
        target=target,
        min_replicas=min_replicas,
        max_replicas=max_replicas,
        provider=None if provider is None else _one_of("--provider", provider, _providers()),
        autoscaler=autoscaler.value,
        namespace=namespace,
        image=image,
        prometheus_url=prometheus_url,
        source=None if source is None else source.value,
        scrapes_pods=scrape_pods,
        serves_resource=resource_metrics,
        team_rules=rules_configmaps,
    )
    answers = _asked(answers, found) if sys.stdin.isatty() else _complete(answers, found)
    _write(proposed(answers, found), path)


def _looked_at(kubeconfig: Path | None, context: str | None, look: bool | None) -> "Detected":
    """Return what the cluster shows; nothing where it was not asked for and there is none that answers.

    Raises:
        CouldNotLookError, UsageError: it was asked for, and can't be reached or read.
    """
    from gpuscale.install.cluster.detect import Detected
    from gpuscale.kube.kubeconfig import cluster_name
    from gpuscale.kube.writing import WritingClient

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
        client = open_client if is_named else WritingClient
        if not is_named:
            cluster = replace(cluster, timeout_s=_GLANCE_S)
        print(f"gpuscale: looking at cluster {cluster_name(cluster)}", file=sys.stderr)
        with looking():
            return asyncio.run(_detected(client(cluster)))
    except (CouldNotLookError, ConfigError, UsageError) as error:
        if is_named:
            raise
        print(f"gpuscale: proposing without a cluster: {error}", file=sys.stderr)
        return Detected()


async def _detected(client: "WritingClient") -> "Detected":
    from gpuscale.install.cluster.detect import detect

    async with client:
        return await detect(client)


def _signals() -> Sequence[str]:
    from gpuscale.install.signals import SignalName

    return get_args(SignalName)


def _providers() -> Sequence[str]:
    from gpuscale.install.values import Provider

    return get_args(Provider)


def _one_of(flag: str, text: str, known: Sequence[str]) -> Any:  # noqa: ANN401 - one of a Literal's values
    if text not in known:
        raise UsageError(f"{flag}: found {text!r}, expected one of: {', '.join(known)}")
    return text


def _workload(text: str) -> "FoundWorkload":
    from gpuscale.install.cluster.detect import FoundWorkload

    kinds = {"deployment": "Deployment", "statefulset": "StatefulSet"}
    parts = text.split("/")
    kind = (
        kinds[parts.pop(0).lower()]
        if parts[0].lower() in kinds and len(parts) > 1
        else "Deployment"
    )
    if len(parts) > 2 or not all(parts):
        raise UsageError(f"--workload: found {text!r}, expected [KIND/][NAMESPACE/]NAME")
    *namespaces, name = parts
    return FoundWorkload(kind, namespaces[0] if namespaces else "default", name)


def _complete(answers: "Answers", found: "Detected") -> "Answers":
    """Return the answers with what the cluster leaves no doubt about.

    Raises:
        UsageError: something is missing that nobody is there to be asked for.
    """
    workload = answers.workload
    if workload is None and len(found.workloads) == 1:
        workload = found.workloads[0]
    missing = []
    if workload is None:
        missing.append(f"--workload: expected what to scale{_seen(found)}")
    if answers.provider is None and found.provider is None:
        missing.append(f"--provider: expected one of: {', '.join(_providers())}")
    if missing:
        raise UsageError("\n".join(missing))
    return replace(answers, workload=workload)


def _seen(found: "Detected") -> str:
    names = [f"{each.kind.lower()}/{each.namespace}/{each.name}" for each in found.workloads]
    return f", such as {', '.join(names[:5])}" if names else ""


def _asked(answers: "Answers", found: "Detected") -> "Answers":
    """Return the answers with what was asked for on the terminal."""
    from gpuscale.install.signals import SIGNALS

    first = found.workloads[0] if found.workloads else None
    suggestion = f"{first.kind.lower()}/{first.namespace}/{first.name}" if first else None
    workload = answers.workload or _workload(_ask(f"What to scale{_seen(found)}", suggestion))
    provider = answers.provider or found.provider
    provider = provider or _one_of("provider", _ask("Provider", "generic"), _providers())
    signal = SIGNALS[answers.signal]
    target = answers.target
    if target is None:
        target = typer.prompt(
            f"Target of {answers.signal} ({signal.unit})", signal.target, type=float, err=True
        )
    most = typer.prompt("Most pods", answers.max_replicas, type=int, err=True)
    answers = replace(
        answers, workload=workload, provider=provider, target=target, max_replicas=most
    )
    return _asked_of_metrics(answers, found)


def _asked_of_metrics(answers: "Answers", found: "Detected") -> "Answers":
    """Return the answers with what was asked for about the metrics API, where there is a choice."""
    from gpuscale.install.propose import serves_resource, source_for, team_rules

    if answers.source is None and answers.autoscaler != Autoscaler.KEDA.value:
        known = [each.value for each in Source]
        question = f"Where values come from ({' or '.join(known)})"
        chosen = _one_of("source", _ask(question, source_for(answers, found)), known)
        answers = replace(answers, source=chosen)
    if answers.serves_resource is None and serves_resource(answers, found):
        question = "Serve CPU and memory for kubectl top, which nobody does"
        is_wanted = typer.confirm(question, default=True, err=True)
        answers = replace(answers, serves_resource=is_wanted)
    if answers.team_rules is None:
        question = "Labels of ConfigMaps with rules of teams, - for none"
        labels = _ask(question, team_rules(answers, found) or _NONE)
        answers = replace(answers, team_rules="" if labels == _NONE else labels)
    return answers


def _ask(question: str, suggestion: str | None) -> str:
    answer: str = typer.prompt(question, suggestion, err=True)
    return answer


def _write(data: dict[str, Any], path: Path | None) -> None:
    """Check the values as a file would be, and write them.

    Raises:
        ConfigError: they are wrong.
        UsageError: the file can't be written.
    """
    from gpuscale.core.documents import dump_documents
    from gpuscale.install.values import parse_values

    text = dump_documents([data])
    parse_values(text, "what was given")
    text = f"# Every other field has a default: gpuscale schema values\n{text}"
    if path is None:
        print(text, end="")
        return
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--output: can't write {path}: {error.strerror}") from error
    print(f"gpuscale: wrote {path}; next: gpuscale render {path}", file=sys.stderr)
