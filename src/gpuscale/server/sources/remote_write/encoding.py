"""What samples are sent as: Prometheus' remote write, or Azure Monitor's custom metrics."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from gpuscale.series import LabelSet
from gpuscale.series.remote_write import AzureEncoder, LabelEncoder, WriteMessage
from gpuscale.series.storage import snappy_block
from gpuscale.server.sources.remote_write.settings import RemoteWriteEndpoint


class Message(Protocol):
    """Samples that are sent together."""

    samples: int
    newest_ms: int

    def add(self, labels: Iterable[Any], times_ms: Sequence[int], rows: Sequence[bytes]) -> None:
        """Add series that share their times, as the encoder wrote their labels."""

    def bodies(self) -> Iterator[tuple[bytes, int]]:
        """Yield the bodies of requests, and how many samples each has."""


class Encoder(Protocol):
    """How one receiver takes samples."""

    @property
    def headers(self) -> Sequence[tuple[str, str]]:
        """Of every request."""

    def encode(self, labels: LabelSet) -> object | None:
        """Return a series' labels as its messages take them; None for one that is left out."""

    def message(self) -> Message:
        """Return an empty message."""


class PrometheusMessage(WriteMessage):
    """A message of remote write, as one request."""

    def bodies(self) -> Iterator[tuple[bytes, int]]:
        yield snappy_block(self.encode()), self.samples


class PrometheusEncoder(LabelEncoder):
    """Remote write 1.0."""

    headers = (
        ("Content-Encoding", "snappy"),
        ("Content-Type", "application/x-protobuf"),
        ("User-Agent", "gpuscale"),
        ("X-Prometheus-Remote-Write-Version", "0.1.0"),
    )

    def message(self) -> PrometheusMessage:
        return PrometheusMessage()


def encoder_of(endpoint: RemoteWriteEndpoint) -> Encoder:
    """Return how a receiver takes samples."""
    external = dict(endpoint.external_labels)
    azure = endpoint.azure_metrics
    if azure is not None:
        return AzureEncoder(azure.namespace, azure.dimensions, external, endpoint.rules)
    return PrometheusEncoder(external, endpoint.rules)
