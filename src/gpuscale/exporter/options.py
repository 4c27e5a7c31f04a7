"""What a node agent can be asked for beyond what it always does."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpuscale.attribution.counts import NodeGpuResources
from gpuscale.exporter.collector import Extras
from gpuscale.exporter.families.own_metrics import ConfigStatus

if TYPE_CHECKING:
    from gpuscale.exporter.http.passwords import BasicAuth
    from gpuscale.exporter.http.tls import ServerTls


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """How an agent serves, beyond what it always does."""

    extras: Extras = field(default_factory=Extras)
    stream_interval_s: float | None = None
    """From one collect to the next while the stream has subscribers; None is no faster than otherwise."""
    auth: "BasicAuth | None" = None
    """Who may come in; None is everyone."""
    tls: "ServerTls | None" = None
    """None is plain HTTP."""
    resources: Callable[[], NodeGpuResources] | None = None
    """Counts the node's GPUs as Kubernetes does; for Azure's metrics."""
    config: Callable[[], ConfigStatus] = ConfigStatus
    """Reports how the latest load of the configuration went."""
    before_first: Callable[[], Awaitable[None]] | None = None
    """Waited for before the first collect, for two seconds at most, so that GPUs are not reported as
    unallocated just because the agent has just started."""
