"""Encoders of samples: for Prometheus' remote write, and for Azure Monitor's custom metrics."""

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
        """Add the samples of series that share their times, with labels in encoded form."""

    def bodies(self) -> Iterator[tuple[bytes, int]]:
        """Yield request bodies with their number of samples."""


class Encoder(Protocol):
    """The format of one receiver."""

    @property
    def headers(self) -> Sequence[tuple[str, str]]:
        """The headers of every request."""

    def encode(self, labels: LabelSet) -> object | None:
        """Return a series' encoded labels; None for a series that is not sent."""

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
    """Return the encoder for a receiver."""
    external = dict(endpoint.external_labels)
    azure = endpoint.azure_metrics
    if azure is not None:
        return AzureEncoder(azure.namespace, azure.dimensions, external, endpoint.rules)
    return PrometheusEncoder(external, endpoint.rules)
