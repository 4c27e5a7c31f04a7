"""How feeds are found, reached and kept."""

from dataclasses import dataclass, field
from pathlib import Path

from gpuscale.series.storage.limits import DEFAULT_LIMITS, RESOLUTION_MS, ScrapeLimits
from gpuscale.server.sources.feeds.annotated_pods import DEFAULT_EXPORTERS, Exporters
from gpuscale.server.sources.feeds.endpoint_slices import AgentChoice
from gpuscale.server.sources.feeds.selected_pods import PodChoice
from gpuscale.server.sources.feeds.sharing_settings import PeerSettings
from gpuscale.server.sources.feeds.targets import FeedTarget
from gpuscale.server.sources.otlp.settings import OtlpSettings
from gpuscale.server.sources.remote_write.settings import RemoteWriteEndpoint
from gpuscale.server.sources.saving.settings import SavingSettings


@dataclass(frozen=True, slots=True)
class FeedSettings:
    """Everything about feeds that a user decides."""

    agents: AgentChoice = field(default_factory=AgentChoice)
    agent_pages: tuple[str, ...] = ()
    """Paths that are scraped of each agent that is followed here, such as /metrics/azure."""
    static: tuple[FeedTarget, ...] = ()
    """Targets that are there whatever the cluster says."""
    scrapes_pods: bool = True
    """Whether annotated pods are scraped."""
    selected: tuple[PodChoice, ...] = ()
    """Pods that are scraped without an annotation."""
    exporters: tuple[Exporters, ...] = DEFAULT_EXPORTERS
    """Pods whose series may name other pods."""
    scrape_interval_s: float = 5.0
    honor_labels: bool = True
    """Whether exposed labels win over the target's own, such as pod and namespace."""
    agent_ca_file: Path | None = None
    agent_server_name: str | None = None
    """That agents' certificates are for; None for the host of each address."""
    agent_client_files: tuple[Path, Path] | None = None
    """Certificate and key."""
    agent_username: str | None = None
    agent_password_file: Path | None = None
    agent_token_file: Path | None = None
    retention_ms: int = 900_000
    """How far back samples are kept."""
    max_series: int = 200_000
    max_samples: int = 20_000_000
    """8 bytes each, 16 where a series comes alone; where this is reached, the oldest make room."""
    limits: ScrapeLimits = DEFAULT_LIMITS
    """Of each target, scraped or streamed."""
    keeps_all_series: bool = False
    """Whether series are kept that no rule can ask for."""
    resolution_ms: int = RESOLUTION_MS
    """Of streams: the step of time of which the newest sample is kept."""
    saving: SavingSettings | None = None
    """Where the store is kept over a restart; None for nowhere."""
    remote_write: tuple[RemoteWriteEndpoint, ...] = ()
    """Who gets a copy of all samples."""
    otlp: OtlpSettings | None = None
    """Of OTLP metrics that are pushed in; None takes none."""
    peers: PeerSettings | None = None
    """The other replicas that share the agents; None where this one follows all of them."""
