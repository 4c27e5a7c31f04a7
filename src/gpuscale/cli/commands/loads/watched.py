"""The watchers that run during a load."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from gpuscale.base.errors import UsageError
from gpuscale.cli.options.cluster import cluster_settings, context_namespace, looking

if TYPE_CHECKING:
    from gpuscale.load.watching import Watched, WatchedHpa, WatchedUp

T = TypeVar("T")


def watched_hpa(
    hpa: str | None, namespace: str | None, kubeconfig: Path | None, context: str | None
) -> "WatchedHpa | None":
    """Return the HPA of the options; None where none is named.

    Raises:
        UsageError: there is a cluster and no HPA, or an HPA and no cluster.
    """
    if hpa is None:
        if namespace or kubeconfig or context:
            raise UsageError("found the options of a cluster, expected --watch-hpa beside them")
        return None
    from gpuscale.load.watching import WatchedHpa

    settings = cluster_settings(kubeconfig, context)
    return WatchedHpa(settings, namespace or context_namespace(settings), hpa.removeprefix("hpa/"))


def while_watching(
    watch: "WatchedHpa | WatchedUp | None", run: Callable[[], T]
) -> "tuple[T, Watched | None]":
    """Return a run's result, and the watcher's; None if nothing was watched.

    Raises:
        CouldNotLookError: what is to be watched can't be; then nothing was run.
    """
    if watch is None:
        return run(), None
    from gpuscale.load.watching import watching

    with contextlib.ExitStack() as stack:
        with looking():  # a failed watch does not make the load fail
            watcher = stack.enter_context(watching(watch))
        done = run()
        return done, watcher.stop()
