"""The command lines of the control plane's programs.

What is set is what a test needs: loopback only, own certificates, no leader election, no flush to disk.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpuscale_testing.certificates import KeyPair

SERVICE_RANGE = "10.0.0.0/24"
SERVICE_ADDRESS = "10.0.0.1"
"""The first of the range: the Service `kubernetes`."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a test may want otherwise."""

    hpa_sync_period_s: float = 15.0
    """Between two looks at each HPA; upstream's default."""
    hpa_downscale_stabilization_s: float = 300.0
    """Upstream's default, as the next two."""
    hpa_initial_readiness_delay_s: float = 30.0
    hpa_cpu_initialization_period_s: float = 300.0
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    """For the API server, the controller manager and the scheduler alike."""
    extra_flags: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Program name to flags that are added at the end, where they win."""
    stop_grace_s: float = 1.0
    """From SIGTERM to SIGKILL; an API server would drain for a minute, and its data is thrown away."""

    def sped_up(self, speed: float) -> "Settings":
        """Return settings with which the HPA controller keeps up with a clock that runs so much faster."""
        return replace(
            self,
            hpa_sync_period_s=self.hpa_sync_period_s / speed,
            hpa_downscale_stabilization_s=self.hpa_downscale_stabilization_s / speed,
            hpa_initial_readiness_delay_s=self.hpa_initial_readiness_delay_s / speed,
            hpa_cpu_initialization_period_s=self.hpa_cpu_initialization_period_s / speed,
        )


@dataclass(frozen=True, slots=True)
class Files:
    """The files that the programs read."""

    folder: Path
    client_ca: Path
    front_proxy_ca: Path
    front_proxy: KeyPair
    serving: KeyPair
    tokens: KeyPair
    controller_manager: Path
    """A kubeconfig."""
    scheduler: Path
    """A kubeconfig."""


def etcd_flags(folder: Path, client_port: int, peer_port: int) -> list[str]:
    """Return the arguments of etcd."""
    client, peer = f"http://127.0.0.1:{client_port}", f"http://127.0.0.1:{peer_port}"
    return [
        f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def apiserver_flags(files: Files, etcd_port: int, port: int, settings: Settings) -> list[str]:
    """Return the arguments of kube-apiserver."""
    return [
        f"--etcd-servers=http://127.0.0.1:{etcd_port}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--cert-dir={files.folder}",
        f"--tls-cert-file={files.serving.certificate}",
        f"--tls-private-key-file={files.serving.key}",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={files.tokens.certificate}",
        f"--service-account-signing-key-file={files.tokens.key}",
        f"--client-ca-file={files.client_ca}",
        f"--requestheader-client-ca-file={files.front_proxy_ca}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-username-headers=X-Remote-User",
        f"--proxy-client-cert-file={files.front_proxy.certificate}",
        f"--proxy-client-key-file={files.front_proxy.key}",
        "--authorization-mode=Node,RBAC",
        "--allow-privileged=true",  # as on every real cluster: DaemonSets of devices need it
        "--endpoint-reconciler-type=none",
        *_gates(settings),
        *settings.extra_flags.get("kube-apiserver", ()),
    ]


def controller_manager_flags(files: Files, settings: Settings) -> list[str]:
    """Return the arguments of kube-controller-manager."""
    hpa_times = {
        "sync-period": settings.hpa_sync_period_s,
        "downscale-stabilization": settings.hpa_downscale_stabilization_s,
        "initial-readiness-delay": settings.hpa_initial_readiness_delay_s,
        "cpu-initialization-period": settings.hpa_cpu_initialization_period_s,
    }
    return [
        f"--kubeconfig={files.controller_manager}",
        f"--service-account-private-key-file={files.tokens.key}",
        f"--root-ca-file={files.client_ca}",
        "--use-service-account-credentials=true",
        "--leader-elect=false",
        "--secure-port=0",
        *(
            f"--horizontal-pod-autoscaler-{name}={_go_seconds(seconds)}"
            for name, seconds in hpa_times.items()
        ),
        *_gates(settings),
        *settings.extra_flags.get("kube-controller-manager", ()),
    ]


def scheduler_flags(files: Files, settings: Settings) -> list[str]:
    """Return the arguments of kube-scheduler."""
    return [
        f"--kubeconfig={files.scheduler}",
        "--leader-elect=false",
        "--secure-port=0",
        *_gates(settings),
        *settings.extra_flags.get("kube-scheduler", ()),
    ]


def _gates(settings: Settings) -> list[str]:
    gates = [f"{name}={str(on).lower()}" for name, on in settings.feature_gates.items()]
    return [f"--feature-gates={','.join(gates)}"] if gates else []


def _go_seconds(seconds: float) -> str:
    return f"{seconds:g}s"
