"""What `top` and `dashboard` look at: the options that say it, and what takes the pictures."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuscale.base.errors import UsageError
from gpuscale.cli.options.cluster import cluster_settings, namespace_option
from gpuscale.cli.options.prometheus import check_url, prometheus_access

if TYPE_CHECKING:
    from gpuscale.kube.client import KubeClient
    from gpuscale.ops.top import Picture, Reader
    from gpuscale.readings import Gpus
    from gpuscale.server.sources.http import SourceAccess

OnlyNamespace = Annotated[
    str | None,
    namespace_option("Show the workloads, Jobs and events of this namespace only.", "all"),
]
Urls = Annotated[
    list[str] | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="Instead of a cluster: the GPUs behind a node agent's or dcgm-exporter's metrics page; "
        "may come again.",
    ),
]
GpuSource = Annotated[
    str | None,
    typer.Option(
        "--gpu",
        metavar="SOURCE",
        help="Instead of a cluster: the GPUs of this machine, by nvml, amd or simulated[:MODEL[:COUNT]].",
    ),
]
Every = Annotated[
    float, typer.Option(min=1, max=3600, metavar="SECONDS", help="Look again after this time.")
]


@dataclass(frozen=True, slots=True)
class Looked:
    """What is looked at."""

    kubeconfig: Path | None
    context: str | None
    namespace: str | None
    urls: Sequence[str]
    gpu: str | None
    prometheus_url: str | None
    prometheus_access: "SourceAccess | None"


def looked_at(
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    urls: Sequence[str],
    gpu: str | None,
    prometheus_url: str | None,
    prometheus_token_file: Path | None,
    prometheus_identity: str | None,
) -> Looked:
    """Return what the options name.

    Raises:
        UsageError: they don't go together, or one is wrong.
    """
    for each in urls:
        check_url("--url", each)
    access = prometheus_access(prometheus_url, prometheus_token_file, prometheus_identity)
    if urls and gpu is not None:
        raise UsageError("--url, --gpu: expected one of them")
    instead = "--url" if urls else "--gpu"
    for option, given in (("--prometheus-url", prometheus_url), ("--namespace", namespace)):
        if (urls or gpu is not None) and given is not None:
            raise UsageError(f"{option}: it is about a cluster, and {instead} is instead of one")
    return Looked(kubeconfig, context, namespace, urls, gpu, prometheus_url, access)


@asynccontextmanager
async def opened(looked: Looked) -> "AsyncIterator[tuple[Reader, KubeClient | None]]":
    """Give what takes the pictures, and the client of the cluster where it is one.

    Raises:
        UsageError: there is no usable kubeconfig, or no such GPUs.
        ApiUnreachableError: the API server does not answer.
    """
    from gpuscale.base.clock import WallClock

    if looked.gpu is not None:
        from gpuscale.readings import open_gpus

        with open_gpus(looked.gpu, processes=True) as gpus:
            yield _MachineReader(gpus), None
        return
    if looked.urls:
        from gpuscale.ops.top import PageReader

        yield PageReader(looked.urls, WallClock()), None
        return
    from gpuscale.kube.client import KubeClient, cluster_name
    from gpuscale.ops.top import ClusterReader, TopSettings

    cluster = cluster_settings(looked.kubeconfig, looked.context)
    settings = TopSettings(looked.namespace, looked.prometheus_url, looked.prometheus_access)
    name = str(cluster_name(cluster))
    async with KubeClient(cluster) as client:
        await client.check_ready()
        yield ClusterReader(client, name, WallClock(), settings), client


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
