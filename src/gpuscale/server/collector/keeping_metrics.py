"""The collector's own metrics about saving to disk and remote write.

Those of remote write have Prometheus' own names, so that its dashboards and alerts fit.

Source: prometheus storage/remote/queue_manager.go.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate

from gpuscale.base.exposition.families import Family, Sample
from gpuscale.server.metricsapi.telemetry.histograms import Labels
from gpuscale.server.metricsapi.telemetry.own_metrics import family
from gpuscale.server.sources.feeds.collector import FeedCollector
from gpuscale.server.sources.remote_write.sender import BOUNDS_S, RemoteWriter
from gpuscale.server.sources.saving.settings import SavingState

_PREFIX = "prometheus_remote_storage"


def keeping_families(feeds: FeedCollector) -> tuple[Family, ...]:
    """Return the metrics of saving and of remote write; none for a feature that is off."""
    saved = () if feeds.saver is None else _saving(feeds.saver.state)
    return (*saved, *(_remote_write(feeds) if feeds.writers else ()))


def _saving(state: SavingState) -> tuple[Family, ...]:
    found = [
        ("up", "gauge", "1 if samples are saved.", int(state.fault is None)),
        ("failures_total", "counter", "Saves that failed.", state.faults),
        ("samples_total", "counter", "Samples that were saved.", state.samples),
        ("written_bytes_total", "counter", "Bytes that were written.", state.written_bytes),
        ("bytes", "gauge", "Bytes of all files.", state.disk_bytes),
        ("segments", "gauge", "Files.", state.segments),
        (
            "restored_samples",
            "gauge",
            "Samples that were read back at the start.",
            state.restored_samples,
        ),
        (
            "restored_series",
            "gauge",
            "Series that were read back at the start.",
            state.restored_series,
        ),
        (
            "restore_seconds",
            "gauge",
            "Time that reading back took.",
            state.restore_seconds,
        ),
        (
            "torn_bytes",
            "gauge",
            "Bytes at the ends of files that could not be read at the start.",
            state.torn_bytes,
        ),
        (
            "unusable_files",
            "gauge",
            "Files that were put aside at the start.",
            state.put_aside,
        ),
        (
            "ended_series_total",
            "counter",
            "Series that were read back and ended, because nothing more came of them.",
            state.ended,
        ),
    ]
    families = [
        family(f"store_saving_{name}", kind, text, {(): n}) for name, kind, text, n in found
    ]
    if state.saved_ms is not None:
        families.append(
            family(
                "store_saving_last_timestamp_seconds",
                "gauge",
                "When samples were saved last, in seconds since the epoch.",
                {(): state.saved_ms / 1000},
            )
        )
    lost: dict[Labels, float] = {
        (("reason", reason),): count for reason, count in (state.lost_samples or {}).items()
    }
    families.append(
        family(
            "store_saving_lost_samples",
            "gauge",
            "Samples in the files that were not read back at the start, by reason.",
            lost,
        )
    )
    return tuple(families)


def _remote_write(feeds: FeedCollector) -> tuple[Family, ...]:
    writers = feeds.writers

    def each(name: str, kind: str, text: str, value: Callable[[RemoteWriter], float]) -> Family:
        samples = tuple(Sample(_labels(writer), value(writer)) for writer in writers)
        return Family(f"{_PREFIX}_{name}", kind, text, samples)

    newest_ms = feeds.store.stats().now_ms
    return (
        each("samples_total", "counter", "Samples that were sent.", lambda it: it.state.sent),
        each(
            "samples_failed_total",
            "counter",
            "Samples that the receiver refused for good.",
            lambda it: it.state.failed,
        ),
        each(
            "samples_retried_total",
            "counter",
            "Samples of requests that were sent once more.",
            lambda it: it.state.retried,
        ),
        _dropped(writers),
        each(
            "samples_pending",
            "gauge",
            "Samples that are under way.",
            lambda it: it.state.pending,
        ),
        each(
            "bytes_total",
            "counter",
            "Bytes of samples that were sent, compressed.",
            lambda it: it.state.sent_bytes,
        ),
        Family(
            f"{_PREFIX}_highest_timestamp_in_seconds",
            "gauge",
            "The store's newest time, in seconds since the epoch.",
            () if newest_ms is None else (Sample((), newest_ms / 1000),),
        ),
        each(
            "queue_highest_sent_timestamp_seconds",
            "gauge",
            "The newest sample that was sent, in seconds since the epoch.",
            lambda it: it.state.newest_ms / 1000,
        ),
        each(
            "shards",
            "gauge",
            "Requests that may be under way at a time.",
            lambda it: it.endpoint.requests,
        ),
        each(
            "max_samples_per_send",
            "gauge",
            "Samples of one request at most.",
            lambda it: it.endpoint.max_samples,
        ),
        Family(
            f"{_PREFIX}_sent_batch_duration_seconds",
            "histogram",
            "Time that requests took.",
            tuple(sample for writer in writers for sample in _histogram(writer)),
        ),
    )


def _dropped(writers: Sequence[RemoteWriter]) -> Family:
    return Family(
        f"{_PREFIX}_samples_dropped_total",
        "counter",
        "Samples that were not sent, by reason.",
        tuple(
            Sample((("reason", reason), *_labels(writer)), count)
            for writer in writers
            for reason, count in writer.state.dropped.items()
        ),
    )


def _histogram(writer: RemoteWriter) -> list[Sample]:
    labels = _labels(writer)
    bounds = [*map(str, BOUNDS_S), "+Inf"]
    counts = list(accumulate(writer.state.buckets))
    return [
        *(
            Sample((*labels, ("le", bound)), count, "_bucket")
            for bound, count in zip(bounds, counts, strict=True)
        ),
        Sample(labels, writer.state.seconds, "_sum"),
        Sample(labels, counts[-1], "_count"),
    ]


def _labels(writer: RemoteWriter) -> tuple[tuple[str, str], ...]:
    state = writer.state
    return (("remote_name", state.name or state.url), ("url", state.url))
