"""What is written for the control plane, without one: files, flags, objects."""

import base64
import json
import socket
import subprocess
from ipaddress import ip_address
from pathlib import Path

import pytest

from gpuscale.base.errors import UnavailableError
from gpuscale.base.objects.taints import Taint
from gpuscale.kube.aggregation import AggregatedServer, aggregation_objects
from gpuscale.kube.simulated.nodes import node_object, node_status
from gpuscale.kube.simulated.pod_status import Placed, creating, running, succeeded
from gpuscale_testing import SimulatedNode, local_address, wait_until
from gpuscale_testing.addresses import free_ports, is_listening
from gpuscale_testing.certificates import Authority, KeyPair, write_kubeconfig
from gpuscale_testing.flags import (
    Files,
    Settings,
    controller_manager_flags,
    scheduler_flags,
)

PAIR = KeyPair(Path("a.pem"), Path("a.key"))
FILES = Files(
    Path(), Path("ca"), Path("fp"), PAIR, PAIR, PAIR, Path("kcm.conf"), Path("sched.conf")
)
POD = {"spec": {"containers": [{"name": "model", "image": "m:1"}]}}
PLACED = Placed("10.64.0.1", "10.200.0.1", "2026-01-01T00:00:00Z")
NOW = "2026-01-01T00:00:05Z"


def openssl(*arguments: str) -> str:
    return subprocess.run(
        ["openssl", *arguments], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_a_client_certificate_carries_user_and_groups_and_is_signed_by_its_authority(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path, "ca")
    pair = authority.client("ann/admin+1", ["ml", "ops"])
    certificate = str(pair.certificate)
    subject = openssl("x509", "-in", certificate, "-noout", "-subject", "-nameopt", "multiline")
    fields = [line.split("= ")[1] for line in subject.splitlines()[1:]]
    assert fields == ["ml", "ops", "ann/admin+1"]
    usage = ["-purpose", "sslclient", "-CAfile", str(authority.certificate)]
    assert openssl("verify", *usage, certificate) == f"{certificate}: OK"


def test_a_serving_certificate_holds_for_names_and_addresses(tmp_path: Path) -> None:
    pair = Authority(tmp_path, "ca").server("api", ["api.default.svc", "127.0.0.1"])
    names = openssl("x509", "-in", str(pair.certificate), "-noout", "-ext", "subjectAltName")
    assert names.splitlines()[1].strip() == "DNS:api.default.svc, IP Address:127.0.0.1"


def test_a_missing_openssl_is_told_with_the_package_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnavailableError) as caught:
        Authority(tmp_path, "ca")
    assert str(caught.value) == (
        "certificates are made with the program openssl, which is not on PATH; "
        "install Debian's package openssl"
    )


def test_a_kubeconfig_stands_on_its_own_and_is_for_its_owner_alone(tmp_path: Path) -> None:
    for name in ("ca", "ann.pem", "ann.key"):
        (tmp_path / name).write_text(name)
    pair = KeyPair(tmp_path / "ann.pem", tmp_path / "ann.key")
    path = tmp_path / "ann.kubeconfig"
    write_kubeconfig(path, "https://127.0.0.1:1", tmp_path / "ca", pair)
    config = json.loads(path.read_text())
    assert config["clusters"][0]["cluster"] == {
        "server": "https://127.0.0.1:1",
        "certificate-authority-data": base64.b64encode(b"ca").decode(),
    }
    assert config["current-context"] == "ann"
    assert path.stat().st_mode & 0o777 == 0o600


def test_settings_become_flags_and_further_flags_come_last() -> None:
    settings = Settings(
        hpa_sync_period_s=0.5,
        hpa_downscale_stabilization_s=0,
        feature_gates={"HPAScaleToZero": True, "InPlacePodVerticalScaling": False},
        extra_flags={"kube-controller-manager": ["--v=2"]},
    )
    flags = controller_manager_flags(FILES, settings)
    assert flags[-6:] == [
        "--horizontal-pod-autoscaler-sync-period=0.5s",
        "--horizontal-pod-autoscaler-downscale-stabilization=0s",
        # The defaults of kube-controller-manager 1.36 (HPAControllerConfiguration).
        "--horizontal-pod-autoscaler-initial-readiness-delay=30s",
        "--horizontal-pod-autoscaler-cpu-initialization-period=300s",
        "--feature-gates=HPAScaleToZero=true,InPlacePodVerticalScaling=false",
        "--v=2",
    ]
    assert scheduler_flags(FILES, Settings())[-1] == "--secure-port=0"


def test_a_node_offers_its_gpus_and_carries_labels_and_taints() -> None:
    node = SimulatedNode("n", gpus=4, labels={"pool": "h200"}, taints=(Taint("gpu", "yes"),))
    written = node_object(node)
    assert written["metadata"]["labels"]["pool"] == "h200"
    assert written["spec"]["taints"] == [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]
    status = node_status(node, "10.200.0.1", NOW)["status"]
    assert status["allocatable"]["nvidia.com/gpu"] == "4"
    assert [(c["type"], c["status"]) for c in status["conditions"]] == [("Ready", "True")]


def test_a_node_without_gpus_has_no_such_resource() -> None:
    assert "nvidia.com/gpu" not in SimulatedNode("n", gpus=0).capacity


@pytest.mark.parametrize(
    ("patch", "phase", "ready", "state"),
    [
        pytest.param(creating(POD, PLACED, NOW), "Pending", "False", "waiting", id="pulling"),
        pytest.param(
            running(POD, PLACED, NOW, ready=False), "Running", "False", "running", id="loading"
        ),
        pytest.param(
            running(POD, PLACED, NOW, ready=True), "Running", "True", "running", id="ready"
        ),
        pytest.param(succeeded(POD, PLACED, NOW), "Succeeded", "False", "terminated", id="done"),
    ],
)
def test_a_pods_status_is_that_of_its_stage(patch, phase: str, ready: str, state: str) -> None:
    status = patch["status"]
    conditions = {each["type"]: each["status"] for each in status["conditions"]}
    assert (status["phase"], conditions["Ready"], conditions["ContainersReady"]) == (
        phase,
        ready,
        ready,
    )
    assert list(status["containerStatuses"][0]["state"]) == [state]
    assert (status["podIP"], status["startTime"]) == ("10.64.0.1", "2026-01-01T00:00:00Z")


def test_an_aggregated_api_is_a_service_to_localhost_and_an_api_service_per_version() -> None:
    versions = ["custom.metrics.k8s.io/v1beta1", "custom.metrics.k8s.io/v1beta2"]
    server = AggregatedServer("gpuscale", "ml", 6443, ca_bundle=b"pem", labels={"of": "me"})
    service, *registered = aggregation_objects(versions, server)
    assert service["spec"] == {"type": "ExternalName", "externalName": "localhost"}
    assert [each["metadata"]["name"] for each in registered] == [
        "v1beta1.custom.metrics.k8s.io",
        "v1beta2.custom.metrics.k8s.io",
    ]
    assert [each["metadata"]["labels"] for each in (service, *registered)] == [{"of": "me"}] * 3
    spec = registered[0]["spec"]
    assert spec["service"] == {"namespace": "ml", "name": "gpuscale", "port": 6443}
    assert spec["caBundle"] == base64.b64encode(b"pem").decode()
    assert "insecureSkipTLSVerify" not in spec


def test_without_a_bundle_any_certificate_is_taken() -> None:
    server = AggregatedServer("s", "default", 1)
    _, registered = aggregation_objects(["external.metrics.k8s.io/v1beta1"], server)
    assert registered["spec"]["insecureSkipTLSVerify"] is True


def test_an_aggregated_api_on_another_machine_is_reached_through_an_endpoint() -> None:
    server = AggregatedServer("s", "ml", 6443, address="192.0.2.7")
    service, endpoints, slice_, _ = aggregation_objects(["external.metrics.k8s.io/v1beta1"], server)
    assert service["spec"] == {"ports": [{"name": "https", "port": 6443, "protocol": "TCP"}]}
    (subset,) = endpoints["subsets"]
    assert subset == {"addresses": [{"ip": "192.0.2.7"}], "ports": service["spec"]["ports"]}
    assert endpoints["metadata"]["labels"] == {"endpointslice.kubernetes.io/skip-mirror": "true"}
    assert slice_["metadata"]["labels"]["kubernetes.io/service-name"] == "s"
    assert slice_["addressType"] == "IPv4"
    assert slice_["endpoints"][0]["addresses"] == ["192.0.2.7"]


def test_a_local_address_is_this_machines_and_not_loopback() -> None:
    with local_address() as address, socket.create_server((address, 0)) as server:
        socket.create_connection(server.getsockname(), timeout=10).close()
        found = ip_address(address)
        assert not any((found.is_loopback, found.is_link_local, found.is_multicast))
        with local_address() as other, socket.create_server((other, 0)):
            pass


def test_free_ports_differ_and_nobody_listens_on_them() -> None:
    ports = free_ports(3)
    assert len(set(ports)) == 3
    assert not any(is_listening(port) for port in ports)


def test_waiting_says_what_did_not_come_and_what_was_found() -> None:
    with pytest.raises(UnavailableError) as caught:
        wait_until(list, "a pod", timeout_s=0.0, every_s=0.001)
    assert str(caught.value) == "waited 0 s for a pod; last found []"
