"""`gpuscale conform`: evidence that pods scale on what their accelerators do."""

import asyncio
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuscale.base.errors import UsageError
from gpuscale.cli.commands.decide import named_hpa
from gpuscale.cli.exits import NO
from gpuscale.cli.files import write_files
from gpuscale.cli.options.agents import AgentUrls, agent_urls
from gpuscale.cli.options.cluster import (
    Context,
    Kubeconfig,
    cluster_settings,
    context_namespace,
    looking,
    namespace_option,
)
from gpuscale.cli.texts import printable
from gpuscale.ops.doctor.pulse import AT_ONCE

if TYPE_CHECKING:
    from gpuscale.kube.client import KubeSettings
    from gpuscale.ops.doctor.conform import ConformSettings, Evidence

_URL = re.compile(r"https?://.+")


def conform(
    hpa: Annotated[
        str, typer.Argument(metavar="hpa/NAME", help="Of a workload whose pods have GPUs.")
    ],
    *,
    load_url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Make the load: GET this, again and again."),
    ] = None,
    load_wait: Annotated[
        bool, typer.Option("--load-wait", help="Make no load; it says when to start and stop yours.")
    ] = False,
    at_once: Annotated[
        int,
        typer.Option(
            min=AT_ONCE.lowest, max=AT_ONCE.highest, help="Requests of --load-url under way at a time."
        ),
    ] = 4,
    output_dir: Annotated[
        str | None,
        typer.Option("--output-dir", "-d", metavar="FOLDER", help="Write the evidence there."),
    ] = None,
    idle: Annotated[
        float,
        typer.Option("--idle", min=1, max=3600, metavar="SECONDS", help="Watched without load first."),
    ] = 45,
    out_within: Annotated[
        float,
        typer.Option(min=5, max=7200, metavar="SECONDS", help="Until a new pod has to be ready."),
    ] = 600,
    in_within: Annotated[
        float,
        typer.Option(min=5, max=7200, metavar="SECONDS", help="Until it has to be back at its size."),
    ] = 900,
    steady: Annotated[
        float,
        typer.Option(min=0, max=3600, metavar="SECONDS", help="That it then has to stay there."),
    ] = 30,
    namespace: Annotated[
        str | None, namespace_option("Namespace of the HPA.", "the context's")
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    agent: AgentUrls = None,
) -> None:  # fmt: skip
    """Show that pods scale on what their GPUs do, as CNCF's Kubernetes AI Conformance asks for it.

    It watches a workload of yours idle, under load and left alone again, judges what it saw, and refuses what
    proves nothing: a value that the pod sets itself, one of another pod, scale-out without scale-in. All that
    it does to the cluster is the load.

    Exit code 0: shown; 1: a step failed or was not come to; 2: the input is wrong, or the cluster could not
    be looked at.

    Example:  gpuscale conform hpa/vision --load-url http://127.0.0.1:8080/infer -d evidence
    """
    from gpuscale.ops.doctor.conform import ConformSettings, conform_files, conform_lines, judge

    name = named_hpa(hpa)
    if (load_url is None) != load_wait:
        raise UsageError("--load-url, --load-wait: expected one of them")
    if load_url is not None and not _URL.fullmatch(load_url):
        raise UsageError(f"--load-url: found {load_url!r}, expected http://... or https://...")
    folder = None if output_dir is None else Path(output_dir)
    if folder is not None and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"--output-dir: found {output_dir}, expected a new or an empty folder")
    settings = ConformSettings(load_url, at_once, idle, out_within, in_within, steady)
    cluster = cluster_settings(kubeconfig, context)
    place = namespace or context_namespace(cluster), name
    with looking():
        evidence, at_ms = asyncio.run(_run(cluster, place, settings, agent_urls(agent or ())))
    results = judge(evidence)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        texts = conform_files(evidence, results, at_ms)
        write_files({str(folder / name): text for name, text in texts.items()})
    for line in conform_lines(evidence, results):
        print(line)
    if not all(each.passed for each in results):
        raise typer.Exit(NO)


async def _run(
    cluster: "KubeSettings",
    place: tuple[str, str],
    settings: "ConformSettings",
    agents: dict[str, str],
) -> "tuple[Evidence, int]":
    from gpuscale.base.clock import WallClock
    from gpuscale.kube.client import KubeClient
    from gpuscale.ops.doctor import GatherSettings
    from gpuscale.ops.doctor.conform import watch

    clock, (namespace, name) = WallClock(), place
    around = GatherSettings(namespace, agent_urls=agents)
    async with KubeClient(cluster) as client:
        return await watch(client, clock, around, name, settings, _tell), clock.now_ms()


def _tell(text: str) -> None:
    """Say what happens next, on standard error: programs read the output."""
    print(f"gpuscale: {printable(text)}", file=sys.stderr, flush=True)
