"""`gpuscale bundle` on a real control plane: secrets are planted wherever objects and logs can hold some."""

import base64
import json
import ssl
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gpuscale_testing import ControlPlane

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster"), pytest.mark.timeout(300)]

GPUSCALE = Path(sys.executable).parent / "gpuscale"
ROLE = Path(__file__).parents[2] / "docs" / "examples" / "doctor-role.yaml"
PLANTED = "pl4nted-s3cret"
LOG = f"""2026-01-01T00:00:00Z level=info msg="serving" address=127.0.0.1:9400
2026-01-01T00:00:01Z level=error msg="refused" url=http://user:{PLANTED}@prometheus:9090/api
2026-01-01T00:00:02Z GET / Authorization: Bearer {PLANTED}-token
2026-01-01T00:00:03Z the database said {PLANTED}-of-env is wrong
"""
LAST_APPLIED = {
    "kubectl.kubernetes.io/last-applied-configuration": json.dumps({"env": [{"value": PLANTED}]})
}
OURS = {"app.kubernetes.io/part-of": "gpuscale", "app": "agent"}
CONTAINER = {
    "name": "main",
    "image": "registry.example/main:1",
    "args": ["--port=80", "--api-key", PLANTED, f"--dsn=postgres://u:{PLANTED}@db/x"],
    "env": [
        {"name": "DB_PASSWORD", "value": f"{PLANTED}-of-env"},
        {"name": "MODE", "value": PLANTED},
        {"name": "FROM", "valueFrom": {"secretKeyRef": {"name": "hidden", "key": "k"}}},
    ],
    "resources": {"limits": {"nvidia.com/gpu": "1"}},
}
KUBECONFIG = f"""apiVersion: v1
users:
- user:
    client-certificate-data: {base64.b64encode(PLANTED.encode()).decode()}
    client-key-data: {base64.b64encode(PLANTED.encode()).decode()}
    token: {PLANTED}
"""


def named(kind: str, version: str, name: str, **more: object) -> dict[str, object]:
    meta = {"name": name, "namespace": "default", "annotations": LAST_APPLIED, "labels": OURS}
    return {"apiVersion": version, "kind": kind, "metadata": meta, **more}


OBJECTS = [
    named("Secret", "v1", "hidden", stringData={"k": PLANTED}),
    named("ConfigMap", "v1", "rules", data={"config.yaml": f"password: {PLANTED}\nrules: []\n"}),
    named("ConfigMap", "v1", "kubeconfig", data={"config": KUBECONFIG}),
    named(
        "Deployment",
        "apps/v1",
        "web",
        spec={
            "replicas": 0,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}, "annotations": LAST_APPLIED},
                "spec": {"containers": [CONTAINER]},
            },
        },
    ),
    named("Pod", "v1", "agent", spec={"nodeName": "n1", "containers": [CONTAINER]}),
    named(
        "HorizontalPodAutoscaler",
        "autoscaling/v2",
        "web",
        spec={
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "maxReplicas": 3,
            "metrics": [
                {
                    "type": "Pods",
                    "pods": {
                        "metric": {"name": "gpu"},
                        "target": {"type": "AverageValue", "averageValue": "60"},
                    },
                }
            ],
        },
    ),
]


class Kubelet(BaseHTTPRequestHandler):
    """What the API server asks for logs."""

    def do_GET(self) -> None:
        is_known = self.path.startswith("/containerLogs/default/agent/main?")
        self.send_response(200 if is_known else 404)
        self.end_headers()
        self.wfile.write(LOG.encode() if is_known else b"")

    def log_message(self, *_: object) -> None:
        """Be quiet."""


@pytest.fixture(scope="module")
def planted(plane: ControlPlane) -> Iterator[ControlPlane]:
    pair = plane.serving_certificate("127.0.0.1")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Kubelet)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    plane.apply(json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}))
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": server.server_address[1]}},
        "allocatable": {"nvidia.com/gpu": "1"},
        "capacity": {"nvidia.com/gpu": "1"},
    }
    patch = json.dumps({"status": status})
    plane.kubectl("patch", "node", "n1", "--subresource=status", "--type=merge", f"-p={patch}")
    plane.wait("serviceaccount/default", "create")
    plane.kubectl(
        "create",
        "-f",
        "-",
        stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": OBJECTS}),
    )
    yield plane
    server.shutdown()
    server.server_close()


def archive(
    plane: ControlPlane, kubeconfig: Path, folder: Path
) -> tuple["subprocess.CompletedProcess[str]", dict[str, str]]:
    done = subprocess.run(
        [GPUSCALE, "bundle", f"--kubeconfig={kubeconfig}", "--output-file=b.tar.gz"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    with tarfile.open(folder / "b.tar.gz") as packed:
        packed.extractall(folder, filter="data")
    root = folder / "b"
    return done, {str(each.relative_to(root)): each.read_text() for each in root.rglob("*.*")}


def test_no_planted_secret_is_in_the_archive(planted: ControlPlane, tmp_path: Path) -> None:
    done, files = archive(planted, planted.admin, tmp_path)
    assert done.returncode == 0, done.stderr
    encoded = base64.b64encode(PLANTED.encode()).decode()
    for name, text in files.items():
        assert PLANTED not in text, name
        assert encoded not in text, name
    assert '"Secret"' not in "".join(files.values())
    # and what explains the cluster is there
    (pod,) = json.loads(files["objects/pods.json"])
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert pod["spec"]["containers"][0]["args"][:2] == ["--port=80", "--api-key"]
    assert (
        json.loads(files["objects/nodes.json"])[0]["status"]["allocatable"]["nvidia.com/gpu"] == "1"
    )
    assert {each["metadata"]["name"] for each in json.loads(files["objects/configmaps.json"])} == {
        "rules",
        "kubeconfig",
    }
    log = files["logs/default/agent/main.log"].splitlines()
    assert len(log) == len(LOG.splitlines())
    assert "serving" in log[0]
    assert log[3].endswith("the database said (redacted) is wrong")
    (decision,) = json.loads(files["decisions.json"])
    assert decision["hpa"] == "decisions/default-web.json"


def test_what_may_not_be_read_is_named(planted: ControlPlane, tmp_path: Path) -> None:
    planted.kubectl("apply", "-f", str(ROLE))
    bind = ("create", "clusterrolebinding", "supporter", "--clusterrole=gpuscale-doctor")
    planted.kubectl(*bind, "--user=supporter")
    done, files = archive(planted, planted.kubeconfig("supporter"), tmp_path)
    assert done.returncode == 0, done.stderr
    left_out = files["index.md"].partition("## Left out")[2]
    assert "logs/default/agent/main.log" in left_out
    assert "pods/log" in left_out
    assert "objects/pods.json" in files
