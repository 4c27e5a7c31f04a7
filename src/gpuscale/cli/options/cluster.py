"""Options that select a cluster as kubectl does, and the confirmation before it is changed."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuscale.base.errors import GpuscaleError, UnavailableError, UpstreamError, UsageError

if TYPE_CHECKING:
    from gpuscale.kube.client import KubeSettings

PANEL = "Cluster"
TIMEOUT_S = 30.0

Kubeconfig = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Kubeconfig of the cluster.",
        show_default="as kubectl: $KUBECONFIG, ~/.kube/config, the pod's service account",
        rich_help_panel=PANEL,
    ),
]


def _contexts() -> list[str]:
    """Return the contexts of kubectl's kubeconfigs, for a shell to complete."""
    from gpuscale.kube.client import contexts

    return contexts(os.environ)


Context = Annotated[
    str | None,
    typer.Option(
        autocompletion=_contexts,
        metavar="NAME",
        help="Context of the kubeconfig.",
        show_default="its current one",
        rich_help_panel=PANEL,
    ),
]
Yes = Annotated[
    bool,
    typer.Option(
        "--yes", "-y", help="Don't ask before changing the cluster.", rich_help_panel=PANEL
    ),
]


def namespace_option(help_: str, default: str) -> Any:  # noqa: ANN401 - typer keeps the class to itself
    """Return the option `-n` of a command.

    Args:
        help_: what the namespace is for.
        default: in words.
    """
    return typer.Option(
        "--namespace",
        "-n",
        metavar="NAME",
        help=help_,
        show_default=default,
        rich_help_panel=PANEL,
    )


class CouldNotLookError(GpuscaleError):
    """A cluster could not be asked, so that there is no answer; exit code 2."""


def cluster_settings(kubeconfig: Path | None, context: str | None) -> "KubeSettings":
    """Return how to reach the cluster that kubectl would reach with these options.

    Raises:
        UsageError: there is no kubeconfig, and this is not a pod.
    """
    from gpuscale.kube.client import KubeSettings, find_kubeconfigs

    files = find_kubeconfigs(kubeconfig, os.environ)
    first = files[0] if files else None
    return KubeSettings(first, context, more_kubeconfigs=files[1:], timeout_s=TIMEOUT_S)


def context_namespace(settings: "KubeSettings") -> str:
    """Return the namespace of the kubeconfig's context, `default` where it has none.

    Raises:
        UsageError, ConfigError: there is no usable kubeconfig.
    """
    from gpuscale.kube.client import cluster_name

    return cluster_name(settings).namespace


def kubectl_options(kubeconfig: Path | None, context: str | None) -> str:
    """Return the options that lead kubectl and our commands to the same cluster; starts with a space."""
    import shlex

    given = (("--kubeconfig", kubeconfig), ("--context", context))
    return "".join(f" {name} {shlex.quote(str(value))}" for name, value in given if value)


def show_cluster(settings: "KubeSettings") -> None:
    """Print the cluster that a command is about, on standard error.

    Raises:
        UsageError, ConfigError: there is no usable kubeconfig.
    """
    from gpuscale.kube.client import cluster_name

    print(f"gpuscale: cluster {cluster_name(settings)}", file=sys.stderr, flush=True)


def check_can_ask(what: str, *, yes: bool) -> None:
    """Raise if `confirm` would need a user and there is none; for commands with work before it.

    Raises:
        UsageError: there is no terminal to ask at.
    """
    if not yes and not sys.stdin.isatty():
        raise UsageError(f"found no terminal to ask at before it may {what}; add --yes")


def confirm(what: str, *, yes: bool) -> None:
    """Raise unless the change of a cluster is confirmed.

    Args:
        what: the change, as a verb in the imperative: `install gpuscale`.
        yes: whether it was confirmed on the command line.

    Raises:
        UsageError: there is no terminal to ask at.
        typer.Exit: with code 1, the answer is no.
    """
    check_can_ask(what, yes=yes)
    if yes:
        return
    sys.stdout.flush()
    if not typer.confirm(f"{what[0].upper()}{what[1:]}?", default=False, err=True):
        print("gpuscale: nothing was changed", file=sys.stderr)
        raise typer.Exit(1)


@contextmanager
def looking() -> Iterator[None]:
    """Turn errors of reaching a cluster into an exit code other than that of faults found.

    Raises:
        CouldNotLookError: the cluster can't be reached, or refuses to be read.
    """
    try:
        yield
    except (UnavailableError, UpstreamError) as error:
        raise CouldNotLookError(str(error)) from error
