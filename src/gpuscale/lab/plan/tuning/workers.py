"""The place of replays: this machine's cores, or the user's Dask or Ray cluster."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any
from warnings import catch_warnings, filterwarnings

from gpuscale.base import compiling
from gpuscale.base.errors import UnavailableError, UsageError
from gpuscale.lab.plan.tuning.outcomes import SettingOutcome
from gpuscale.lab.plan.tuning.search import Each
from gpuscale.triggers.policies import Numbers

_ANSWERS_WITHIN_S = 20
_PACKAGES = {"dask": "distributed", "ray": "ray"}
"""What a cluster's client is imported by, and installed as."""
_RAY_HINT = "; where it asks for a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN"
"""Ray's client says only that time ran out."""


@contextmanager
def workers(on: str | None, count: int) -> Iterator[Each]:
    """Yield a function that replays batches of settings in order, with equal results everywhere.

    Args:
        on: `dask://HOST:PORT` or `ray://HOST:PORT`; None for this machine.
        count: of threads on this machine; processes, where replays are not compiled.

    Raises:
        UsageError: another address, or the cluster's package is not installed.
        UnavailableError: the cluster does not answer.
    """
    import joblib

    with ExitStack() as stack:
        # Replays on nodes suppress this warning too; in threads they would restore it for each
        # other.
        stack.enter_context(catch_warnings())
        filterwarnings("ignore", "First-class function type feature is experimental")
        if on is None:
            # Compiled replays release the GIL.
            where = {"backend": "loky" if compiling.numba() is None else "threading"}
            settings: dict[str, Any] = {**where, "n_jobs": count}
        else:
            settings = stack.enter_context(_cluster(on))
        stack.enter_context(joblib.parallel_config(**settings))
        pool = stack.enter_context(joblib.Parallel())

        def each(
            trial: Callable[[Sequence[Numbers]], list[SettingOutcome]],
            batches: Iterable[Sequence[Numbers]],
        ) -> list[list[SettingOutcome]]:
            found: list[list[SettingOutcome]] = pool(
                joblib.delayed(_outcomes)(trial, batch) for batch in batches
            )
            return found

        yield each


def _outcomes(
    trial: Callable[[Sequence[Numbers]], list[SettingOutcome]], batch: Sequence[Numbers]
) -> list[SettingOutcome]:
    """Call a trial; a plain function, as joblib names tasks by their function."""
    return trial(batch)


def check_address(on: str) -> None:
    """Refuse an invalid cluster address, or one whose package is not installed.

    Raises:
        UsageError: one of the two.
    """
    kind, separator, address = on.partition("://")
    host, _, port = address.rpartition(":")
    if kind not in _PACKAGES or not separator or not host or not port.isdecimal():
        raise UsageError(f"--on: found {on!r}, expected dask://HOST:PORT or ray://HOST:PORT")
    _client(kind)


@contextmanager
def _cluster(on: str) -> Iterator[dict[str, Any]]:
    """Connect to a cluster, and yield joblib's configuration for it."""
    check_address(on)
    kind, _, address = on.partition("://")
    client = _client(kind)
    try:
        if kind == "dask":
            connected = client.Client(f"tcp://{address}", timeout=_ANSWERS_WITHIN_S)
        else:
            import_module("ray.util.joblib").register_ray()
            connected = client.init(address=on)
    except (OSError, TimeoutError, ConnectionError) as error:
        hint = "" if kind == "dask" else _RAY_HINT
        raise UnavailableError(f"--on {on}: the cluster does not answer: {error}{hint}") from None
    with connected:
        yield {"backend": kind, "n_jobs": -1}


def _client(kind: str) -> Any:  # noqa: ANN401 - a module without types
    package = _PACKAGES[kind]
    try:
        return import_module(package)
    except ModuleNotFoundError:
        raise UsageError(
            f"--on {kind}://: found no Python package {package};"
            f" install it with: pip install {package}"
        ) from None
