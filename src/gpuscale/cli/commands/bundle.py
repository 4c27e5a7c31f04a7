"""`gpuscale bundle`: a support archive of a cluster, without its secrets."""

import asyncio
import platform
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuscale import __version__
from gpuscale.base.errors import ConfigError, GpuscaleError, UsageError
from gpuscale.cli.exits import NO
from gpuscale.cli.options.cluster import (
    Context,
    Kubeconfig,
    cluster_settings,
    namespace_option,
)
from gpuscale.cli.options.prometheus import (
    PrometheusTokenFile,
    PrometheusUrl,
    RecordedCaFile,
    prometheus_access,
    recorded_by,
)
from gpuscale.cli.progress import working
from gpuscale.cli.texts import printable

if TYPE_CHECKING:
    from gpuscale.kube.client import KubeSettings
    from gpuscale.ops.bundle import Archive
    from gpuscale.ops.doctor import GatherSettings
    from gpuscale.server.sources.prometheus import PrometheusSource

_ENDS = (".tar.gz", ".tgz", ".zip")
_PACKAGES = ("aiohttp", "h2", "httpx2", "numpy", "pydantic", "pyyaml", "typer")
_SHOWN = 5
"""Of what is not in it; the rest is in its index."""


def bundle(
    *,
    output_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Ends in .tar.gz or .zip.",
            show_default="gpuscale-bundle-TIME.tar.gz",
        ),
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Annotated[
        str | None, namespace_option("Decisions and findings of this namespace's HPAs only.", "all")
    ] = None,
    values: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Values file of the installation.")
    ] = None,
    prometheus_url: PrometheusUrl = None,
    prometheus_token_file: PrometheusTokenFile = None,
    prometheus_ca_file: RecordedCaFile = None,
    most_mb: Annotated[
        int, typer.Option(min=1, max=1000, metavar="N", help="Megabytes of all files, unpacked.")
    ] = 50,
) -> None:
    """Write what is needed to explain a cluster's GPU autoscaling into an archive, without secrets.

    Versions, doctor's findings, what each HPA sees and decides, the objects that are about GPUs and their
    scaling, logs of gpuscale's pods, and the last hour of metrics where --prometheus-url says whom to ask. No
    Secret is read, and what looks like one is taken out of all else. The archive's index.md says what is in
    it, what is not, and why. Only reads.

    Exit code 0: written; 1: written, without the cluster, which can't be read; 2: the input is wrong.

    Example:  gpuscale bundle

    Example:  gpuscale bundle --prometheus-url http://127.0.0.1:9090 --output-file case.zip
    """
    from gpuscale.base.clock import WallClock
    from gpuscale.base.text_files import read_text
    from gpuscale.base.whole_files import check_writable, replace_files
    from gpuscale.kube.client import cluster_name
    from gpuscale.ops.bundle import Archive
    from gpuscale.ops.doctor import GatherSettings

    now_ms = WallClock().now_ms()
    moment = datetime.fromtimestamp(now_ms / 1000, UTC)
    file = str(output_file or f"gpuscale-bundle-{moment:%Y%m%dT%H%M%SZ}.tar.gz")
    if not file.endswith(_ENDS):
        raise UsageError(
            f"--output-file: found {file!r}, expected one that ends in .tar.gz or .zip"
        )
    check_writable([file], "--output-file")
    access = prometheus_access(prometheus_url, prometheus_token_file, None)
    source = prometheus_url and recorded_by(
        "--prometheus-url", prometheus_url, prometheus_token_file, prometheus_ca_file
    )
    cluster = cluster_settings(kubeconfig, context)
    name = str(cluster_name(cluster))
    archive = Archive(Path(file).name.partition(".")[0], now_ms, most_mb * 1_000_000)
    archive.add("versions.json", _versions(name), "gpuscale, its Python and packages")
    if values is not None:
        archive.add("values.yaml", read_text(str(values)), "the values file")
    settings = GatherSettings(namespace, prometheus_url, access, reads_secrets=False)
    with working(f"looking at cluster {name}") as report:
        asyncio.run(_gather(archive, cluster, settings, source or None, report))
        replace_files({file: archive.writer(is_zip=file.endswith(".zip"))})
    print(f"wrote {file}")
    for what, why in list(archive.left_out.items())[:_SHOWN]:
        print(printable(f"gpuscale: not in it: {what}: {why}"), file=sys.stderr)
    if len(archive.left_out) > _SHOWN:
        more = len(archive.left_out) - _SHOWN
        print(f"gpuscale: not in it: {more} more; its index.md lists them", file=sys.stderr)
    if "cluster" in archive.left_out:
        raise typer.Exit(NO)


async def _gather(
    archive: "Archive",
    cluster: "KubeSettings",
    settings: "GatherSettings",
    source: "PrometheusSource | None",
    report: Callable[[str], None],
) -> None:
    from gpuscale.base.clock import WallClock
    from gpuscale.kube.client import KubeClient
    from gpuscale.ops.bundle import add_cluster, add_metrics

    clock = WallClock()
    try:
        async with KubeClient(cluster) as client:
            await add_cluster(archive, client, clock, settings, report)
    except ConfigError:
        raise
    except GpuscaleError as error:
        archive.leave_out("cluster", error)
    if source is None:
        archive.leave_out("metrics", "no --prometheus-url was given")
        return
    async with source:
        await add_metrics(archive, source, clock.now_ms(), report)


def _versions(cluster: str) -> dict[str, object]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return {
        "gpuscale": __version__,
        "cluster": cluster,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": found,
    }
