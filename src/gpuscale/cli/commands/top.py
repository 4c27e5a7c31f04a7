"""`gpuscale top`: what GPUs, nodes, workloads and Jobs do now."""

import asyncio
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from gpuscale.cli.options.cluster import Context, Kubeconfig, looking
from gpuscale.cli.options.prometheus import (
    PrometheusIdentity,
    PrometheusTokenFile,
    PrometheusUrl,
)
from gpuscale.cli.pictures import Every, GpuSource, Looked, OnlyNamespace, Urls, looked_at, opened
from gpuscale.cli.progress import working
from gpuscale.cli.texts import Output, print_document, printable

if TYPE_CHECKING:
    from gpuscale.kube.client import KubeClient
    from gpuscale.ops.top import Picture, WorkloadRow

_EVENTS = 10
"""That a printed picture shows."""
_PIPE_WIDTH = 160
"""Letters of a line that goes to a file."""


def top(
    *,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: OnlyNamespace = None,
    url: Urls = None,
    gpu: GpuSource = None,
    prometheus_url: PrometheusUrl = None,
    prometheus_token_file: PrometheusTokenFile = None,
    prometheus_identity: PrometheusIdentity = None,
    every: Every = 5,
    once: Annotated[bool, typer.Option("--once", help="Look once, print it and end.")] = False,
    output: Annotated[
        Output, typer.Option("--output", "-o", help="json and yaml look once and print a document.")
    ] = Output.TEXT,
) -> None:
    """Show what GPUs do now: of a cluster, with its workloads, Jobs, nodes and events; or of this machine.

    Only reads. Of a cluster it needs the kubeconfig alone: values come from the node agents or dcgm-exporters
    that run there, or from a Prometheus. Enter on a workload asks what its HPA would do now, and why.

    Exit code 0: it was looked at; 2: the input is wrong, or nothing could be looked at.

    Example:  gpuscale top

    Example:  gpuscale top -n vision --once

    Example:  gpuscale top --gpu nvml

    Example:  gpuscale top --url http://127.0.0.1:9400 -o json
    """
    looked = looked_at(
        kubeconfig,
        context,
        namespace,
        url or (),
        gpu,
        prometheus_url,
        prometheus_token_file,
        prometheus_identity,
    )
    is_live = not once and output is Output.TEXT and sys.stdout.isatty()
    with looking():
        asyncio.run(_look(looked, is_live, every, output))


async def _look(looked: Looked, is_live: bool, every_s: float, output: Output) -> None:
    """Show pictures until one quits, or print one."""
    async with opened(looked) as (reader, client):
        if is_live:
            from gpuscale.cli.top_screen import TopApp

            explain = None if client is None else partial(_explanation, client)
            await TopApp(reader, every_s, explain).run_async()
            return
        with working("looking at GPUs, nodes and workloads"):
            picture = await reader.look()
    _print(picture, output)


async def _explanation(client: "KubeClient", row: "WorkloadRow") -> Sequence[str]:
    from gpuscale.base.clock import WallClock
    from gpuscale.hpa.decisions import decide_request
    from gpuscale.lab.views import decision_lines
    from gpuscale.ops.observe import read_request

    request = await read_request(client, WallClock(), row.namespace, row.name)
    return [line.text for line in decision_lines(request, decide_request(request))]


def _print(picture: "Picture", output: Output) -> None:
    from gpuscale.ops.top import picture_document, picture_lines

    if output is not Output.TEXT:
        print_document(picture_document(picture), output)
        return
    width = shutil.get_terminal_size((_PIPE_WIDTH, 24)).columns
    for line in picture_lines(picture, width, _EVENTS):
        print(printable(line))
