"""`gpuscale top`: what GPUs, nodes, workloads and Jobs do now."""

import asyncio
import shutil
import socket
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuscale.base.errors import UsageError
from gpuscale.cli.options.cluster import (
    Context,
    Kubeconfig,
    cluster_settings,
    looking,
    namespace_option,
)
from gpuscale.cli.options.prometheus import (
    PrometheusIdentity,
    PrometheusTokenFile,
    PrometheusUrl,
    check_url,
    prometheus_access,
)
from gpuscale.cli.progress import working
from gpuscale.cli.texts import Output, print_document, printable

if TYPE_CHECKING:
    from gpuscale.cli.top_screen import Reader
    from gpuscale.kube.client import KubeSettings
    from gpuscale.ops.top import Picture, TopSettings
    from gpuscale.readings import Gpus

_EVENTS = 10
"""That a printed picture shows."""
_PIPE_WIDTH = 160
"""Letters of a line that goes to a file."""


def top(
    *,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Annotated[
        str | None,
        namespace_option("Show the workloads, Jobs and events of this namespace only.", "all"),
    ] = None,
    url: Annotated[
        list[str] | None,
        typer.Option(
            "--url",
            metavar="URL",
            help="Instead of a cluster: the GPUs behind a node agent's or dcgm-exporter's metrics page; "
            "may come again.",
        ),
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE",
            help="Instead of a cluster: the GPUs of this machine, by nvml, amd or simulated[:MODEL[:COUNT]].",
        ),
    ] = None,
    prometheus_url: PrometheusUrl = None,
    prometheus_token_file: PrometheusTokenFile = None,
    prometheus_identity: PrometheusIdentity = None,
    every: Annotated[
        float, typer.Option(min=1, max=3600, metavar="SECONDS", help="Look again after this time.")
    ] = 5,
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
    for each in url or ():
        check_url("--url", each)
    access = prometheus_access(prometheus_url, prometheus_token_file, prometheus_identity)
    if url and gpu is not None:
        raise UsageError("--url, --gpu: expected one of them")
    instead = "--url" if url else "--gpu"
    for option, given in (("--prometheus-url", prometheus_url), ("--namespace", namespace)):
        if (url or gpu is not None) and given is not None:
            raise UsageError(f"{option}: it is about a cluster, and {instead} is instead of one")
    is_live = not once and output is Output.TEXT and sys.stdout.isatty()
    with looking():
        if gpu is not None:
            from gpuscale.readings import open_gpus

            with open_gpus(gpu, processes=True) as gpus:
                asyncio.run(_shown(_MachineReader(gpus), is_live, every, output))
            return
        if url:
            from gpuscale.base.clock import WallClock
            from gpuscale.ops.top import PageReader

            asyncio.run(_shown(PageReader(url, WallClock()), is_live, every, output))
            return
        from gpuscale.ops.top import TopSettings

        settings = TopSettings(namespace, prometheus_url, access)
        asyncio.run(
            _cluster(cluster_settings(kubeconfig, context), settings, is_live, every, output)
        )


async def _cluster(
    cluster: "KubeSettings", settings: "TopSettings", is_live: bool, every_s: float, output: Output
) -> None:
    from gpuscale.base.clock import WallClock
    from gpuscale.kube.client import KubeClient, cluster_name
    from gpuscale.ops.top import ClusterReader

    clock = WallClock()

    async def explain(row: Any) -> Sequence[str]:  # noqa: ANN401 - a row of the table of workloads
        from gpuscale.base.documents.documents import load_each
        from gpuscale.base.errors import GpuscaleError
        from gpuscale.hpa.decisions import decide_request, read_decision
        from gpuscale.lab.views import decision_lines
        from gpuscale.ops.observe import HpaSelection, read_hpas

        (seen,) = await read_hpas(cluster, HpaSelection(row.namespace, (row.name,)), clock)
        if isinstance(seen, GpuscaleError):
            raise seen
        (document,) = load_each(seen.document, seen.place)
        if isinstance(document, GpuscaleError):
            raise document
        request = read_decision(document)
        return [line.text for line in decision_lines(request, decide_request(request))]

    name = str(cluster_name(cluster))
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(KubeClient(cluster))
        await client.check_ready()
        reader = ClusterReader(client, name, clock, settings)
        await _shown(reader, is_live, every_s, output, explain)


async def _shown(
    reader: "Reader",
    is_live: bool,
    every_s: float,
    output: Output,
    explain: Any = None,  # noqa: ANN401
) -> None:
    """Show pictures until one quits, or print one."""
    if is_live:
        from gpuscale.cli.top_screen import TopApp

        await TopApp(reader, every_s, explain).run_async()
        return
    with working("looking at GPUs, nodes and workloads"):
        picture = await reader.look()
    _print(picture, output)


def _print(picture: "Picture", output: Output) -> None:
    from gpuscale.ops.top import picture_document, picture_lines

    if output is not Output.TEXT:
        print_document(picture_document(picture), output)
        return
    width = shutil.get_terminal_size((_PIPE_WIDTH, 24)).columns
    for line in picture_lines(picture, width, _EVENTS):
        print(printable(line))


class _MachineReader:
    """Takes pictures of this machine's GPUs, and of the processes that have them."""

    def __init__(self, gpus: "Gpus") -> None:
        self._gpus = gpus

    async def look(self) -> "Picture":
        from gpuscale.base.clock import WallClock
        from gpuscale.ops.top import Picture, gpu_row

        readings = await asyncio.to_thread(self._gpus.read)
        rows = []
        for reading in readings:
            gpu, instance = reading.gpu, reading.gpu.instance
            labels = {"gpu": str(gpu.index), "UUID": gpu.allocated_as, "modelName": gpu.model}
            if instance is not None:
                labels |= {"GPU_I_ID": str(instance.id), "GPU_I_PROFILE": instance.profile}
            values = {
                name: float(value)
                for name, value in reading.values.items()
                if isinstance(value, int | float)
            }
            owners = tuple(f"{each.name} ({each.pid})" for each in reading.processes)
            faults = ("lost: it gives no reading",) if reading.is_lost else ()
            rows.append(gpu_row("", labels, values, owners, faults))
        return Picture(WallClock().now_ms(), f"GPUs of {socket.gethostname()}", tuple(rows))
