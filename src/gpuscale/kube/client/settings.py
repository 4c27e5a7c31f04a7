"""How the API server is reached."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class KubeSettings:
    """How to reach the API server."""

    kubeconfig: Path | None = None
    """None is the pod's service account."""
    context: str | None = None
    """Of the kubeconfig; its current one when None."""
    more_kubeconfigs: tuple[Path, ...] = ()
    """Merged with `kubeconfig` as kubectl merges those of $KUBECONFIG: what comes first wins."""
    timeout_s: float = 10.0
    """For a request that is no watch."""
    watch_s: int = 300
    """After so long the server ends a watch and it is begun again, so that a dead connection shows."""
    retry_s: float = 1.0
    """Wait after a failed request; doubled up to `max_retry_s`."""
    max_retry_s: float = 30.0
    max_line_bytes: int = 16 * 1024 * 1024
    """Of one object in a watch; etcd holds objects up to 1.5 MiB by default."""
    max_body_bytes: int = 64 * 1024 * 1024
    """Of one page of a list."""
    page_size: int = 500
    """Objects of one page of a list."""
