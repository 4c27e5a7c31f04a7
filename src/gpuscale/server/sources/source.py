"""The interfaces of metric sources and of object directories."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from gpuscale.base.objects.selectors import Selector
from gpuscale.base.plugins import PluginGroup
from gpuscale.series import Value
from gpuscale.server.rules.resources import ResourceType


class MetricSource(Protocol):
    """A Prometheus, or anything with the same answers."""

    async def series(self, selector: str, start_ms: int) -> Sequence[Mapping[str, str]]:
        """Return the label sets, `__name__` included, of the series with a sample since `start_ms`.

        Raises:
            QueryError: the selector is no PromQL.
            UnavailableError: no answer; trying again may help.
            UpstreamError: the source answered with an error.
        """
        ...

    async def query(self, promql: str, at_ms: int) -> Value:
        """Return what the query evaluates to at `at_ms`.

        Raises:
            QueryError: the text is no PromQL.
            UnavailableError: no answer; trying again may help.
            UpstreamError: the source answered with an error.
        """
        ...


@runtime_checkable
class NamingSource(Protocol):
    """A source that can list names without listing series."""

    async def names(
        self, selector: str, start_ms: int, *, of_metrics: bool
    ) -> frozenset[str] | None:
        """Return the names of metrics, or of labels, of the series that were there since `start_ms`.

        Series that ended before may be among them. None where it can't tell. Errors as `MetricSource.series`.
        """
        ...


class ClosableSource(MetricSource, Protocol):
    """A source that has connections to close."""

    async def close(self) -> None:
        """Close the connections; a second call does nothing."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRequest:
    """The arguments for opening a source."""

    url: str
    """Of `--prometheus-url`; it may be for something else than a Prometheus."""
    timeout_s: float
    """Of `--prometheus-timeout`, for each question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceKind:
    """A kind of metric source, from a plug-in."""

    name: str
    """As `--source` has it."""
    open: Callable[[SourceRequest], ClosableSource]


SOURCE_PLUGINS = PluginGroup("gpuscale.metric_sources", SourceKind)


class ObjectDirectory(Protocol):
    """Names of the cluster's objects, answered from memory."""

    def names(
        self, resource: ResourceType, namespace: str | None, selector: Selector
    ) -> tuple[str, ...]:
        """Return the names of the selected objects, in the order for answers.

        Args:
            resource: pods, services, nodes ...
            namespace: None for a resource that has none.
            selector: conditions on the objects' labels.
        """
        ...
