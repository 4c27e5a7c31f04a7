"""`gpuscale install` and `gpuscale uninstall`: onto a cluster, and off again."""

import asyncio
import signal
import sys
from collections import Counter
from collections.abc import Coroutine, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from gpuscale.base.errors import UnavailableError, UsageError
from gpuscale.base.golang.durations import parse_duration_ms
from gpuscale.cli.commands.render import read_values
from gpuscale.cli.options.cluster import (
    Context,
    Kubeconfig,
    Yes,
    check_can_ask,
    cluster_settings,
    confirm,
    kubectl_options,
    show_cluster,
)
from gpuscale.cli.texts import Output, print_document

if TYPE_CHECKING:
    from gpuscale.kube.client import KubeClient, KubeSettings
    from gpuscale.ops.install import Object, Values
    from gpuscale.ops.install.cluster import ApplySettings, ClusterChange

T = TypeVar("T")
_TRIES = 6
"""Of a read without an answer, a second apart: a cluster that changes is busy."""

Changes = Annotated[Output, typer.Option("--output", "-o", help="How the changes are printed.")]
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
    output: Changes = Output.TEXT,
) -> None:
    """Apply what a values file asks for, wait until it works, and report what was changed.

    What fails is taken back as a whole. Run it again after a change of the values: only that changes. What
    lint calls an error is refused, and so is an image that no node could pull.

    Example:  gpuscale install values.yaml

    Example:  gpuscale install values.yaml --context prod --dry-run server
    """
    values = read_values(values_file)
    cluster = cluster_settings(kubeconfig, context)
    from gpuscale.ops.install.cluster import ApplySettings

    settings = ApplySettings(
        replaces=replace,
        forces=force_conflicts,
        is_dry_run=dry_run is DryRun.SERVER,
        wait_s=_seconds(timeout),
    )
    name = values.metadata.name
    if not settings.is_dry_run:
        check_can_ask(f"install {name}", yes=yes)
    show_cluster(cluster)
    objects = _run(_prepared(values, values_file, cluster, adapts=adapt, replaces=replace))
    if not settings.is_dry_run:
        confirm(f"install {name}", yes=yes)
    changes = _run(_install(name, objects, settings, cluster))
    if output is not Output.TEXT:
        document = {"installation": name, "dryRun": settings.is_dry_run}
        print_document({**document, "changes": _documents(changes)}, output)
        return
    if settings.is_dry_run:
        print("dry run: nothing was changed")
    _show(changes)
    if not settings.is_dry_run:
        sys.stdout.flush()
        options = kubectl_options(kubeconfig, context)
        _tell("next:")
        print(
            f"  gpuscale doctor{options}  # follows values from the GPU to the HPA", file=sys.stderr
        )
        print(f"  kubectl get hpa -A{options}  # what the HPAs read and want", file=sys.stderr)


def uninstall(
    *,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    yes: Yes = False,
    name: Annotated[
        str, typer.Option(help="Of the installation: metadata.name of its values.")
    ] = "gpuscale",
    timeout: Timeout = "2m",
    output: Changes = Output.TEXT,
) -> None:
    """Remove everything that an installation made, put back what it replaced, and see that nothing is left.

    Example:  gpuscale uninstall --context prod
    """
    wait_s = _seconds(timeout)
    cluster = cluster_settings(kubeconfig, context)
    show_cluster(cluster)
    confirm(f"uninstall {name}", yes=yes)
    changes = _run(_uninstall(name, cluster, wait_s))
    if output is not Output.TEXT:
        print_document({"installation": name, "changes": _documents(changes)}, output)
        return
    _show(changes)
    print(
        f"nothing of installation {name} is left" if changes else f"there is no installation {name}"
    )


async def _prepared(
    values: "Values", name: str, cluster: "KubeSettings", *, adapts: bool, replaces: bool
) -> "tuple[Object, ...]":
    """Return the objects to apply, and print what was adapted to the cluster.

    Raises:
        UsageError: the account lacks rights, or no node could start the image.
    """
    from gpuscale.base.clock import WallClock
    from gpuscale.kube import check_rights
    from gpuscale.ops.install import (
        RenderInputs,
        certificate_for,
        needs_certificate,
        outline,
        render,
    )
    from gpuscale.ops.install.cluster import image_fault, missing_targets, needed_rights, zero_fault

    async with open_client(cluster) as client:
        await client.check_ready()
        rights = needed_rights(outline(values), replaces=replaces)
        role = f"The least role: gpuscale render {name} --installer SUBJECT"
        await check_rights(client, rights, "the installation", role)
        if adapts:
            values = await _fitted(values, client)
        if fault := await image_fault(client, values):
            raise UsageError(fault)
        inputs = RenderInputs()
        if needs_certificate(values):
            inputs = RenderInputs(await certificate_for(client, values, WallClock().now_ms()))
        objects = render(values, inputs)
        if fault := await zero_fault(client, objects):
            raise UsageError(fault)
        for line in await missing_targets(client, values, objects):
            _tell(f"warning: {line}")
        return objects


async def _install(
    name: str, objects: "Sequence[Object]", settings: "ApplySettings", cluster: "KubeSettings"
) -> "list[ClusterChange]":
    from gpuscale.base.clock import WallClock
    from gpuscale.ops.install.cluster import Installer

    async with open_client(cluster) as client:
        return await Installer(client, WallClock(), _tell, settings).install(name, objects)


async def _fitted(values: "Values", client: "KubeClient") -> "Values":
    from gpuscale.ops.install import fit
    from gpuscale.ops.install.cluster import detect

    fitted = fit(values, await detect(client))
    for line in fitted.lines:
        _tell(line)
    return fitted.values


async def _uninstall(name: str, cluster: "KubeSettings", wait_s: float) -> "list[ClusterChange]":
    from gpuscale.base.clock import WallClock
    from gpuscale.ops.install.cluster import Remover

    async with open_client(cluster) as client:
        await client.check_ready()
        return await Remover(client, WallClock(), _tell, wait_s).remove(name)


def open_client(cluster: "KubeSettings") -> "KubeClient":
    """Return a client that is patient with a busy API server.

    Raises:
        UsageError: there is no usable kubeconfig.
    """
    from gpuscale.kube.client import KubeClient

    return KubeClient(cluster, tries=_TRIES)


def _run(work: Coroutine[object, object, T]) -> T:
    """Run work and return its result; on Ctrl-C it may undo its changes before it ends.

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


def _documents(changes: "Sequence[ClusterChange]") -> list[dict[str, str | None]]:
    """Return changes as data for programs; cluster-wide objects have no namespace."""
    return [
        {
            "kind": each.reference.kind,
            "namespace": each.reference.namespace or None,
            "name": each.reference.name,
            "outcome": each.outcome.value,
        }
        for each in changes
    ]


def _show(changes: "Sequence[ClusterChange]") -> None:
    counts = Counter(change.outcome.value for change in changes)
    for change in changes:
        if change.outcome.value != "unchanged":
            print(change)
    if counts:
        print(", ".join(f"{count} {word}" for word, count in counts.items()))
