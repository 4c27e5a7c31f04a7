"""`gpuscale install` and `gpuscale uninstall`: onto a cluster, and off again."""

import asyncio
import signal
import sys
from collections import Counter
from collections.abc import Coroutine, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from gpuscale.cli.cluster import Context, Kubeconfig, Yes, cluster_settings, confirm_write
from gpuscale.cli.render import read_values
from gpuscale.core.durations import parse_duration_ms
from gpuscale.core.errors import UnavailableError, UsageError

if TYPE_CHECKING:
    from gpuscale.install.cluster.apply import ApplySettings, Change
    from gpuscale.install.parts.common import Object
    from gpuscale.install.values import Values
    from gpuscale.kube.settings import KubeSettings
    from gpuscale.kube.writing import WritingClient

T = TypeVar("T")

Timeout = Annotated[str, typer.Option(metavar="DURATION", help="For each thing that takes time.")]


class DryRun(Enum):
    """Whether anything is changed."""

    NONE = "none"
    SERVER = "server"


def install(
    values_file: Annotated[
        str, typer.Argument(metavar="VALUES", help="A values file; - is standard input.")
    ],
    *,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    yes: Yes = False,
    dry_run: Annotated[
        DryRun, typer.Option(help="server: the API server checks everything, and changes nothing.")
    ] = DryRun.NONE,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace", help="Take over what belongs to others, such as prometheus-adapter's APIs."
        ),
    ] = False,
    force_conflicts: Annotated[
        bool, typer.Option("--force-conflicts", help="Take over fields that others have set since.")
    ] = False,
    adapt: Annotated[
        bool, typer.Option(help="Fit the values to what the cluster has already.")
    ] = True,
    timeout: Timeout = "5m",
) -> None:
    """Apply what a values file asks for, wait until it works, and tell what was changed.

    What fails is taken back as a whole. Run it again after a change of the values: only that changes.

    Example:  gpuscale install values.yaml

    Example:  gpuscale install values.yaml --context prod --dry-run server
    """
    values = read_values(values_file)
    cluster = cluster_settings(kubeconfig, context)
    from gpuscale.install.cluster.apply import ApplySettings

    settings = ApplySettings(
        replaces=replace,
        forces=force_conflicts,
        is_dry_run=dry_run is DryRun.SERVER,
        wait_s=_seconds(timeout),
    )
    if not settings.is_dry_run:
        confirm_write(cluster, f"install {values.metadata.name}", yes=yes)
    changes = _run(_install(values, settings, cluster, adapts=adapt))
    if settings.is_dry_run:
        print("dry run: nothing was changed")
    _show(changes)


def uninstall(
    *,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    yes: Yes = False,
    name: Annotated[
        str, typer.Option(help="Of the installation: metadata.name of its values.")
    ] = "gpuscale",
    timeout: Timeout = "2m",
) -> None:
    """Remove everything that an installation made, put back what it replaced, and see that nothing is left.

    Example:  gpuscale uninstall --context prod
    """
    wait_s = _seconds(timeout)
    cluster = cluster_settings(kubeconfig, context)
    confirm_write(cluster, f"uninstall {name}", yes=yes)
    changes = _run(_uninstall(name, cluster, wait_s))
    _show(changes)
    print(
        f"nothing of installation {name} is left" if changes else f"there is no installation {name}"
    )


async def _install(
    values: "Values",
    settings: "ApplySettings",
    cluster: "KubeSettings",
    *,
    adapts: bool,
) -> "list[Change]":
    from gpuscale.core.clock import WallClock
    from gpuscale.install.cluster.apply import Installer
    from gpuscale.install.cluster.certificate import certificate_for
    from gpuscale.install.render import Inputs, needs_certificate, render

    clock = WallClock()
    async with open_client(cluster) as client:
        if adapts:
            values = await _fitted(values, client)
        inputs = Inputs()
        if needs_certificate(values):
            inputs = Inputs(await certificate_for(client, values, clock.now_ms()))
        objects = render(values, inputs)
        await _look_first(client, values, objects)
        installer = Installer(client, clock, _tell, settings)
        return await installer.install(values.metadata.name, objects)


async def _look_first(
    client: "WritingClient", values: "Values", objects: "Sequence[Object]"
) -> None:
    """Say what is missing of what is to be scaled.

    Raises:
        UsageError: no node could start the image.
    """
    from gpuscale.install.cluster.preflight import image_fault, missing_targets

    if fault := await image_fault(client, values):
        raise UsageError(fault)
    for line in await missing_targets(client, values, objects):
        _tell(f"warning: {line}")


async def _fitted(values: "Values", client: "WritingClient") -> "Values":
    from gpuscale.install.cluster.detect import detect
    from gpuscale.install.fit import fit

    fitted = fit(values, await detect(client))
    for line in fitted.lines:
        _tell(line)
    return fitted.values


async def _uninstall(name: str, cluster: "KubeSettings", wait_s: float) -> "list[Change]":
    from gpuscale.core.clock import WallClock
    from gpuscale.install.cluster.remove import Remover

    async with open_client(cluster) as client:
        return await Remover(client, WallClock(), _tell, wait_s).remove(name)


def open_client(cluster: "KubeSettings") -> "WritingClient":
    """Return a client of a cluster, which is patient with one that is busy.

    Raises:
        UsageError: there is no usable kubeconfig.
    """
    from gpuscale.install.cluster.client import PatientClient

    return PatientClient(cluster)


def _run(work: Coroutine[object, object, T]) -> T:
    """Return what the work gives; an interruption lets it take back what it did before it ends.

    Raises:
        UnavailableError: it was interrupted.
    """

    async def interruptible() -> T:
        task = asyncio.ensure_future(work)
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        return await task

    try:
        return asyncio.run(interruptible())
    except asyncio.CancelledError:
        raise UnavailableError("interrupted") from None


def _seconds(text: str) -> float:
    try:
        return parse_duration_ms(text) / 1000
    except ValueError as error:
        raise UsageError(f"--timeout: {error}") from None


def _tell(line: str) -> None:
    print(f"gpuscale: {line}", file=sys.stderr, flush=True)


def _show(changes: "Sequence[Change]") -> None:
    counts = Counter(change.outcome.value for change in changes)
    for change in changes:
        if change.outcome.value != "unchanged":
            print(change)
    if counts:
        print(", ".join(f"{count} {word}" for word, count in counts.items()))
