"""What the options of `gpuscale calibrate` ask for: the objective, the replica, its signals, and files."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from gpuscale.base.errors import UsageError
from gpuscale.base.whole_files import check_writable
from gpuscale.cli.options.cluster import context_namespace, looking
from gpuscale.cli.options.requests import slo_of

if TYPE_CHECKING:
    from gpuscale.kube.client import KubeSettings
    from gpuscale.load.calibrate import Objective
    from gpuscale.load.calibrate.measuring import Replica, SignalCandidate, SignalReader


def read_objective(texts: list[str]) -> "Objective":
    """Return what `--promise` says.

    Raises:
        UsageError: it is not one percentile and errors at most.
    """
    from gpuscale.load.calibrate import Objective

    slo = slo_of(texts)
    if len(slo.percentiles) != 1:
        raise UsageError(
            f"--promise: found {len(slo.percentiles)} latencies, expected one such as p95=200ms"
        )
    percentile, limit_ms = slo.percentiles[0]
    errors = 1.0 if slo.errors_percent is None else slo.errors_percent
    return Objective(percentile, limit_ms, errors)


def read_replica(
    text: str, settings: "KubeSettings", others: tuple[str | None, str | None, list[str] | None]
) -> "Replica":
    """Return the one replica of a Deployment.

    Raises:
        UsageError: there are other ways to values beside it, or it is not one replica that stays one.
        NotFoundError: there is no such Deployment.
        CouldNotLookError: the cluster can't be asked.
    """
    import asyncio

    from gpuscale.load.calibrate.measuring import find_replica

    if any(others):
        raise UsageError(
            "found --workload beside --metrics, --prometheus or --signal, expected one way to values"
        )
    namespace, slash, name = text.rpartition("/")
    place = namespace if slash else context_namespace(settings)
    if not name or not place:
        raise UsageError(f"--workload: found {text!r}, expected NAMESPACE/NAME of a Deployment")
    with looking():
        return asyncio.run(find_replica(settings, place, name))


def reader_opener(
    sources: tuple[str | None, str | None],
    signals: "tuple[SignalCandidate, ...]",
    replica: "Replica | None",
    cluster: "KubeSettings | None",
) -> "Callable[[], SignalReader | None]":
    """Return a function that opens the signal reader inside an event loop."""
    from gpuscale.load.calibrate.measuring import PageReader, PrometheusSignals

    page, prometheus = sources

    def opened() -> "SignalReader | None":
        if replica is not None and cluster is not None and replica.metrics:
            from gpuscale.load.calibrate.measuring import ClusterReader

            return ClusterReader(cluster, replica)
        if page is not None:
            return PageReader(page, signals)
        return PrometheusSignals(prometheus, signals) if prometheus is not None else None

    return opened


def read_signals(
    texts: list[str], metrics: str | None, prometheus: str | None, served: tuple[str, ...]
) -> "tuple[SignalCandidate, ...]":
    """Return the candidates to scale on.

    Args:
        texts: as `--signal` has them.
        metrics: page with their values.
        prometheus: that has their values.
        served: metrics that the HPA of a workload scales on; they take the place of the others.

    Raises:
        UsageError: a text is none, or there is no way to their values.
    """
    from gpuscale.load.calibrate.measuring import SignalCandidate, read_signal

    if served:
        return tuple(SignalCandidate(each, "") for each in served)

    if metrics is not None and prometheus is not None:
        raise UsageError("found --metrics and --prometheus, expected one of them")
    if bool(texts) != bool(metrics or prometheus):
        raise UsageError(
            "expected --signal together with --metrics or --prometheus, found one without the other"
        )
    try:
        found = tuple(map(read_signal, texts))
    except ValueError as error:
        raise UsageError(f"--signal: {error}") from None
    if len({each.name for each in found}) < len(found):
        raise UsageError(
            "--signal: found two of the same name, expected NAME=PROMQL with names of their own"
        )
    return found


def check_files(files: Mapping[str, str], *, force: bool) -> None:
    """Raise UsageError if a file can't be written, exists already, or is named twice."""
    if len(set(files.values())) < len(files):
        raise UsageError(
            f"found the same file twice among {', '.join(files)}, expected one for each"
        )
    for option, each in files.items():
        check_writable([each], option)
        if Path(each).is_file() and not force:
            raise UsageError(f"{option}: {each} exists; add --force to replace it")


def check_targets(
    hpa: str | None,
    scaled_object: str | None,
    signals: "tuple[SignalCandidate, ...]",
    prometheus: str | None,
    metric: str | None,
) -> None:
    """Raise UsageError where a manifest has nothing to scale on, or no name for it."""
    for each in [metric] if metric else [each.name for each in signals] if hpa else []:
        if not re.fullmatch(r"[A-Za-z_:][\w:.-]{0,252}", each):
            raise UsageError(
                f"found {each!r} as a metric's name, expected one such as requests_running: say "
                f"--signal NAME=PROMQL, or --metric"
            )
    if (hpa or scaled_object) and not signals:
        option = "--hpa" if hpa else "--scaled-object"
        raise UsageError(f"{option}: found no --signal, expected what to scale on")
    if scaled_object and not prometheus:
        raise UsageError("--scaled-object: found no --prometheus, expected the one that KEDA asks")
