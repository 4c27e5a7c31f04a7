# mypy: disable-error-code="arg-type, call-arg"
"""`gpuscale metrics-api`, as a process with least rights, behind a real Kubernetes."""

import asyncio
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from contextlib import closing, contextmanager, suppress
from http.client import HTTPSConnection
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from gpuscale.base.clock import WallClock
from gpuscale.base.errors import GpuscaleError
from gpuscale.ops.install.rendering import manifest, render
from gpuscale.ops.install.values import Values, ValuesSpec
from gpuscale.series.promapi.app import add_routes
from gpuscale.series.storage.store import SeriesStore
from gpuscale_testing import SimulatedNode, aggregated_api, simulated_nodes, wait_until
from gpuscale_testing.addresses import free_ports
from gpuscale_testing.certificates import Authority
from rendered_parts import scrape_configs

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]

GPUSCALE = Path(sys.executable).parent / "gpuscale"
GROUP_VERSIONS = (
    "custom.metrics.k8s.io/v1beta1",
    "custom.metrics.k8s.io/v1beta2",
    "external.metrics.k8s.io/v1beta1",
)
VALUES = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/pods/*/gpu_util"
RULES = """
rules:
- seriesQuery: gpu_util{}
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
- seriesQuery: throughput
  resources:
    overrides:
      namespace: {resource: namespace}
      node: {resource: node}
      service: {resource: service}
      deployment: {group: apps, resource: deployment}
      job_name: {group: batch, resource: job}
      training: {group: gpuscale.dev, resource: training}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
externalRules:
- seriesQuery: queue_depth
  resources: {namespaced: false}
  metricsQuery: sum(queue_depth{<<.LabelMatchers>>})
"""
RIGHTS = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: metrics-api-delegator}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:auth-delegator"}
subjects: [{kind: User, name: metrics-api, apiGroup: rbac.authorization.k8s.io}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: metrics-api-auth-reader, namespace: kube-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: extension-apiserver-authentication-reader}
subjects: [{kind: User, name: metrics-api, apiGroup: rbac.authorization.k8s.io}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: metrics-api-objects}
rules:
- {apiGroups: [""], resources: [pods, nodes, namespaces, services], verbs: [get, list, watch]}
- {apiGroups: [apps], resources: [deployments], verbs: [list, watch]}
- {apiGroups: [batch], resources: [jobs], verbs: [list, watch]}
- {apiGroups: [gpuscale.dev], resources: [trainings], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: metrics-api-objects}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: metrics-api-objects}
subjects: [{kind: User, name: metrics-api, apiGroup: rbac.authorization.k8s.io}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: one-metric, namespace: default}
rules: [{apiGroups: [custom.metrics.k8s.io], resources: [pods/gpu_util], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: one-metric, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: one-metric}
subjects: [{kind: User, name: reader, apiGroup: rbac.authorization.k8s.io}]
"""
KIND = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: trainings.gpuscale.dev}
spec:
  group: gpuscale.dev
  scope: Namespaced
  names: {plural: trainings, singular: training, kind: Training}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object}}
"""
OBJECTS = """
apiVersion: gpuscale.dev/v1
kind: Training
metadata: {name: resnet, labels: {team: vision}}
---
apiVersion: gpuscale.dev/v1
kind: Training
metadata: {name: whisper, labels: {team: speech}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: nightly, labels: {team: vision}}
spec:
  template: {spec: {restartPolicy: Never, containers: [{name: model, image: none}]}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: front, labels: {team: vision}}
spec:
  replicas: 0
  selector: {matchLabels: {app: front}}
  template: {metadata: {labels: {app: front}}, spec: {containers: [{name: model, image: none}]}}
---
apiVersion: v1
kind: Service
metadata: {name: front, labels: {team: vision}}
spec: {ports: [{port: 80}]}
"""
WORKLOAD = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: served}
spec:
  selector: {matchLabels: {app: served}}
  template:
    metadata: {labels: {app: served}}
    spec: {containers: [{name: model, image: none, resources: {limits: {nvidia.com/gpu: 1}}}]}
"""
POD_WITHOUT_NODE = """
apiVersion: v1
kind: Pod
metadata: {name: alone, labels: {app: alone}}
spec: {containers: [{name: model, image: none}], nodeSelector: {none: none}}
"""
HPA = """
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: served}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: served}
  maxReplicas: 5
  metrics: [{type: Pods, pods: {metric: {name: gpu_util}, target: {type: AverageValue, averageValue: 20}}}]
"""


class Prometheus:
    """A series store behind the Prometheus API, in a thread; it repeats its values every half second."""

    def __init__(self) -> None:
        self.values = {}
        self.port = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    def __enter__(self):
        self._thread.start()
        wait_until(lambda: self.port, "the Prometheus API to listen")
        return self

    def __exit__(self, *_) -> None:
        self._stop.set()
        self._thread.join(10)

    async def _serve(self) -> None:
        store, clock = SeriesStore(), WallClock()
        app = web.Application()
        add_routes(app, store, clock)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.port = runner.addresses[0][1]
        while not self._stop.is_set():
            for labels, value in tuple(self.values.items()):
                store.append(dict(labels), clock.now_ms(), value)
            await asyncio.sleep(0.5)
        await runner.cleanup()

    def set(self, name, value, **labels) -> None:
        self.values[(("__name__", name), *labels.items())] = value


class Server:
    """The command as a process; it can be killed and started again."""

    def __init__(self, plane, prometheus, folder, *more) -> None:
        (self.port,) = free_ports(1)
        self.bundle = folder / "ca.crt"
        (folder / "rules.yaml").write_text(RULES)
        self._log = folder / "log.txt"
        self.audit_log = folder / "audit.log"
        self._command = [
            GPUSCALE,
            "metrics-api",
            f"--config={folder / 'rules.yaml'}",
            f"--lister-kubeconfig={plane.kubeconfig('metrics-api')}",
            f"--prometheus-url=http://127.0.0.1:{prometheus.port}",
            f"--secure-port={self.port}",
            "--shutdown-delay-duration=2s",
            f"--audit-log-path={folder / 'audit.log'}",
            "--bind-address=127.0.0.1",
            "--metrics-relist-interval=1s",
            "--metrics-max-age=10m",
            f"--cert-dir={folder / 'certs'}",
            f"--ca-bundle-file={self.bundle}",
            "--service-name=gpuscale-metrics",
            "--service-namespace=default",
            *more,
        ]
        self.start()

    def start(self) -> None:
        with self._log.open("w") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        wait_until(self._listens, "the metrics API to listen")

    def _listens(self):
        assert self._process.poll() is None, self._log.read_text()
        return re.search("listening", self._log.read_text())

    def stop(self, number=signal.SIGTERM):
        self._process.send_signal(number)
        return self._process.wait(20)


@pytest.fixture(scope="module")
def prometheus():
    with Prometheus() as running:
        yield running


@pytest.fixture(scope="module")
def server(plane, prometheus, tmp_path_factory: pytest.TempPathFactory):
    plane.apply(RIGHTS)
    plane.apply(KIND)
    plane.wait("crd/trainings.gpuscale.dev", "condition=Established")
    running = Server(plane, prometheus, tmp_path_factory.mktemp("metrics-api"))
    service = {"service": "gpuscale-metrics", "ca_bundle": running.bundle}
    with aggregated_api(plane, GROUP_VERSIONS, running.port, **service):
        yield running
    assert running.stop() == 0


@pytest.fixture(scope="module")
def workload(plane):
    with simulated_nodes(plane, SimulatedNode("h200-served", gpus=8)):
        plane.apply(WORKLOAD)
        plane.wait("deployment/served", "jsonpath={.status.readyReplicas}=1")
        yield
        plane.kubectl("delete", "hpa", "--all")
        plane.kubectl("delete", "deployment", "served")
        wait_until(lambda: not pods(plane), "the pods to be gone")


def pods(plane):
    return [each["metadata"]["name"] for each in plane.get("pods", "-l", "app=served")["items"]]


def values(plane, **options):
    items = json.loads(plane.kubectl("get", "--raw", VALUES, **options))["items"]
    return {item["describedObject"]["name"]: item["value"] for item in items}


def replicas(plane):
    return plane.get("deployment", "served")["spec"]["replicas"]


def refusal(plane, path, user):
    with pytest.raises(GpuscaleError, match="orbidden") as caught:
        plane.kubectl("get", "--raw", path, kubeconfig=plane.kubeconfig(user))
    return str(caught.value)


def test_values_come_through_the_aggregation_layer(plane, prometheus, server, workload) -> None:
    (pod,) = pods(plane)
    prometheus.set("gpu_util", 12.5, namespace="default", pod=pod)
    prometheus.set("queue_depth", 45.0, queue="a")
    wait_until(lambda: _try(lambda: values(plane)) == {pod: "12500m"}, "the value")
    path = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/queue_depth"
    wait_until(
        lambda: "45" in str(_try(lambda: plane.kubectl("get", "--raw", path))), "the queue's depth"
    )


STARS = {
    "namespaces/default/trainings.gpuscale.dev/*": ["resnet", "whisper"],
    "namespaces/default/training/*": ["resnet", "whisper"],
    "namespaces/default/trainings/*/throughput?labelSelector=team%3Dvision": ["resnet"],
    "namespaces/default/jobs.batch/*": ["nightly"],
    "namespaces/default/deployments.apps/*": ["front"],
    "namespaces/default/services/*": ["front"],
    "nodes/*": ["h200-served"],
    "namespaces/default/metrics": ["default"],
}


def test_a_star_stands_for_objects_of_any_kind(plane, prometheus, server, workload) -> None:
    plane.apply(OBJECTS)
    for name in ("resnet", "whisper", "gone"):
        prometheus.set("throughput", 7.0, namespace="default", training=name)
    more = {"job_name": "nightly", "deployment": "front", "service": "front", "node": "h200-served"}
    for label, name in more.items():
        prometheus.set("throughput", 7.0, **{"namespace": "default", label: name})
    root = plane.client_certificate("root", ["system:masters"])

    def found(place):
        path = place if "?" in place else f"{place}/throughput"
        path = f"/apis/custom.metrics.k8s.io/v1beta2/{path}"
        code, answer = ask(*through_the_api_server(plane), root, path)
        items = answer["items"] if code == 200 else []
        return sorted(item["describedObject"]["name"] for item in items)

    wait_until(
        lambda: {place: found(place) for place in STARS} == STARS, "objects of every kind", 60.0
    )
    plane.kubectl("delete", "-f", "-", stdin=OBJECTS)


def _try(ask):
    try:
        return ask()
    except GpuscaleError:
        return None


def test_a_user_without_rights_is_refused_and_one_with_a_right_gets_only_that(
    plane, server
) -> None:
    assert "gpu_util" in refusal(plane, VALUES, "stranger")
    assert values(plane, kubeconfig=plane.kubeconfig("reader"))
    refusal(plane, VALUES.replace("gpu_util", "other"), "reader")


def why(plane, whose, user):
    return subprocess.run(
        [GPUSCALE, "metrics-api", "why", whose, "gpu_util", "--kubeconfig", plane.kubeconfig(user)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_who_may_read_a_metric_may_ask_why_and_nobody_else(plane, server, workload) -> None:
    (pod,) = pods(plane)
    result = why(plane, f"pods/default/{pod}", "reader")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith(f"gpu_util of pods default/{pod}: there is a value.\n")
    assert f"ok  objects  {pod} is there" in result.stdout
    missing = why(plane, "pods/default/no-such-pod", "reader")
    assert (missing.returncode, missing.stderr) == (1, "")
    assert "The cluster has no pod no-such-pod there." in missing.stdout
    refused = why(plane, f"pods/default/{pod}", "stranger")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert 'User "stranger" cannot get resource "pods/gpu_util"' in refused.stderr
    page = plane.kubectl("get", "--raw", f"{VALUES}?why")
    assert page.startswith("gpu_util of pods default/*: there is a value.\n")


SPOOFED = {
    "X-Remote-User": "admin",
    "X-Remote-Group": "system:masters",
    "X-Remote-Extra-Scopes": "all",
}


@contextmanager
def answered(address, ca, pair=None, path=VALUES, **headers):
    """Ask without kubectl, and hold on to the answer."""
    host, port = address
    context = ssl.create_default_context(cafile=str(ca))
    if pair is not None:
        context.load_cert_chain(pair.certificate, pair.key)
    with socket.create_connection(("127.0.0.1", port), timeout=20) as plain:
        connection = HTTPSConnection(host, port, timeout=20)
        connection.sock = context.wrap_socket(plain, server_hostname=host)
        with closing(connection):
            connection.request("GET", path, headers=headers)
            yield connection.getresponse()


def ask(*where, **how):
    """Return code and body of the answer to a request made without kubectl."""
    with answered(*where, **how) as response:
        return response.status, json.loads(response.read())


def directly(server):
    return ("gpuscale-metrics.default.svc", server.port), server.bundle


def through_the_api_server(plane):
    return ("localhost", plane.port), plane.ca


def test_the_api_server_is_known_by_its_certificate_and_its_name_for_a_request_is_kept(
    plane, server
) -> None:
    path = "/apis/custom.metrics.k8s.io/v1beta2?a=b"
    root = plane.client_certificate("root", ["system:masters"])
    with answered(*through_the_api_server(plane), root, path) as response:
        audit_id = response.getheader("Audit-Id")

    def events():
        found = map(json.loads, server.audit_log.read_text().splitlines())
        return [each for each in found if each["requestURI"] == path]

    (event,) = wait_until(events, "the event")
    assert event["responseStatus"]["code"] == 200
    assert event["user"]["username"] == "root"
    assert event["auditID"] == audit_id
    with answered(*directly(server), root, "/metrics") as response:
        text = response.read().decode()
    counted = re.search(
        r'^gpuscale_metrics_api_front_proxy_connections\{port="https"\} (\d+)$', text, re.MULTILINE
    )
    assert int(counted[1]) >= 1


def test_spoofed_headers_get_nothing_without_a_certificate(server) -> None:
    code, answer = ask(*directly(server), **SPOOFED)
    assert (code, answer["kind"], answer["reason"]) == (403, "Status", "Forbidden")
    assert 'User "system:anonymous" cannot get' in answer["message"]


@pytest.mark.parametrize("way", ["directly", "through"])
def test_spoofed_headers_get_a_user_no_more_than_its_own_rights(plane, server, way: str) -> None:
    to = directly(server) if way == "directly" else through_the_api_server(plane)
    code, answer = ask(*to, plane.client_certificate("stranger"), **SPOOFED)
    assert (code, answer["reason"]) == (403, "Forbidden")
    assert 'User "stranger" cannot get resource "pods/gpu_util"' in answer["message"]
    assert ask(*to, plane.client_certificate("reader"), **SPOOFED)[0] == 200


def test_a_certificate_of_another_ca_is_no_front_proxy_and_no_user(
    plane, server, tmp_path: Path
) -> None:
    others = Authority(tmp_path, "others")
    for name in ("front-proxy-client", "reader"):
        code, answer = ask(*directly(server), others.client(name), **SPOOFED)
        assert (code, answer["reason"]) == (401, "Unauthorized")
    # The cluster's own CA signs users; a user called like the front proxy is none.
    impostor = plane.client_certificate("front-proxy-client")
    code, answer = ask(*directly(server), impostor, **SPOOFED)
    assert code == 403
    assert 'User "front-proxy-client" cannot get' in answer["message"]


def test_tokens_count_as_long_as_they_are_good(plane, server) -> None:
    plane.kubectl("create", "serviceaccount", "scraper")
    rights = ["--role=one-metric", "--serviceaccount=default:scraper"]
    plane.kubectl("create", "rolebinding", "scraper", *rights)
    token = plane.kubectl("create", "token", "scraper").strip()
    again, expired = signed_anew(token, plane, 0), signed_anew(token, plane, 7200)
    for to in (directly(server), through_the_api_server(plane)):
        assert ask(*to, Authorization=f"Bearer {token}")[0] == 200
        assert ask(*to, Authorization=f"Bearer {token}", **SPOOFED)[0] == 200
        assert ask(*to, Authorization=f"Bearer {token}x")[0] == 401
        assert ask(*to, Authorization=f"Bearer {again}")[0] == 200
        assert ask(*to, Authorization=f"Bearer {expired}")[0] == 401
    plane.kubectl("delete", "serviceaccount", "scraper")
    # A review is remembered for ten seconds.
    with_token = {"Authorization": f"Bearer {token}"}
    wait_until(lambda: ask(*directly(server), **with_token)[0] == 401, "the token to end", 60.0)


@pytest.mark.prometheus
def test_the_installations_prometheus_may_scrape_it_and_nobody_else(
    plane, server, tmp_path: Path
) -> None:
    """A real Prometheus with the rendered job, its rights and its CA; targets are named instead of found."""
    values = Values(spec=ValuesSpec(namespace="default"))
    objects = [each for each in render(values) if "-prometheus" in each["metadata"]["name"]]
    wanted = {"ServiceAccount", "ClusterRole", "ClusterRoleBinding"}
    rights = manifest([each for each in objects if each["kind"] in wanted])
    plane.apply(rights)
    plane.kubectl("create", "serviceaccount", "nobody")
    _, job = scrape_configs(values)
    jobs = [_of_account(plane, server, job, each, tmp_path) for each in SCRAPERS]
    (tmp_path / "prometheus.yml").write_text(json.dumps({"scrape_configs": jobs}))
    (port,) = free_ports(1)
    command = (
        "prometheus",
        f"--config.file={tmp_path / 'prometheus.yml'}",
        f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    )
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait_until(lambda: _scraped(port) == SCRAPERS, "both to have scraped", 60.0)
    finally:
        process.terminate()
        process.wait(timeout=60)
    plane.kubectl("delete", "serviceaccount", "nobody")
    plane.kubectl("delete", "-f", "-", stdin=rights)


# By service account, how a scrape ends.
SCRAPERS = {"gpuscale-prometheus": "", "nobody": "server returned HTTP status 403 Forbidden"}


def _of_account(plane, server, job, account, folder):
    (folder / account).write_text(plane.kubectl("create", "token", account).strip())
    (host, port), ca = directly(server)
    return {
        "job_name": account,
        "scheme": job["scheme"],
        "scrape_interval": "1s",
        "authorization": {**job["authorization"], "credentials_file": str(folder / account)},
        "tls_config": {**job["tls_config"], "ca_file": str(ca), "server_name": host},
        "static_configs": [{"targets": [f"127.0.0.1:{port}"]}],
    }


def _scraped(port):
    with (
        suppress(OSError),
        urlopen(f"http://127.0.0.1:{port}/api/v1/targets", timeout=20) as answer,
    ):
        targets = json.load(answer)["data"]["activeTargets"]
        ended = [each for each in targets if each["health"] != "unknown"]
        return {each["scrapePool"]: each["lastError"] for each in ended}
    return {}


def signed_anew(token, plane, earlier_s):
    """Return a service account's token as if made so much earlier, signed with the cluster's own key."""
    header, payload, _ = token.split(".")
    claims = json.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    for name in ("iat", "nbf", "exp"):
        claims[name] -= earlier_s
    key = load_pem_private_key((plane.folder / "certificates" / "tokens.key").read_bytes(), None)
    text = f"{header}.{_base64(json.dumps(claims).encode())}"
    r, s = decode_dss_signature(key.sign(text.encode(), ec.ECDSA(SHA256())))
    return f"{text}.{_base64(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"


def _base64(data):
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def test_the_controller_scales_and_an_outage_changes_nothing(
    plane, prometheus, server, workload
) -> None:
    (pod,) = pods(plane)
    prometheus.set("gpu_util", 23.0, namespace="default", pod=pod)
    plane.apply(HPA)
    wait_until(lambda: replicas(plane) == 2, "the scale-out to two pods")
    server.stop(signal.SIGKILL)

    def reason():
        conditions = plane.get("hpa", "served")["status"]["conditions"]
        reasons = {each["type"]: (each["status"], each["reason"]) for each in conditions}
        return reasons["ScalingActive"]

    wait_until(lambda: reason() == ("False", "FailedGetPodsMetric"), "a sync without any metrics")
    time.sleep(3)  # and some more of them
    assert reason() == ("False", "FailedGetPodsMetric")
    assert replicas(plane) == 2
    server.start()
    plane.wait(f"apiservice/v1beta2.{GROUP_VERSIONS[0].partition('/')[0]}", "condition=Available")
    plane.wait("hpa/served", "condition=ScalingActive", timeout_s=60)
    assert replicas(plane) == 2


def test_objects_of_a_silent_api_server_are_withheld_and_served_again_at_once(
    plane, prometheus, tmp_path: Path
) -> None:
    plane.apply(RIGHTS)
    plane.apply(KIND)
    plane.wait("crd/trainings.gpuscale.dev", "condition=Established")
    plane.apply(POD_WITHOUT_NODE)
    prometheus.set("gpu_util", 5, namespace="default", pod="alone")
    (loopback,) = free_ports(1)
    flags = ("--object-max-age=6s", f"--insecure-loopback-port={loopback}", "--value-freshness=0s")
    running = Server(plane, prometheus, tmp_path, *flags)
    path = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/pods/*/gpu_util"

    def code(asked):
        try:
            with urlopen(f"http://127.0.0.1:{loopback}{asked}", timeout=60) as found:
                return found.status
        except HTTPError as error:
            return error.code
        except URLError:
            return 0  # it does not listen yet

    def codes():
        return code(f"{path}?labelSelector=app%3Dalone"), code("/readyz")

    try:
        wait_until(lambda: codes() == (200, 200), "the pod's value")
        # Three times the limit without a change: what is quiet is not stale.
        until = time.monotonic() + 18
        while time.monotonic() < until:
            assert codes() == (200, 200)
            time.sleep(0.5)
        (program,) = _children_of(plane, "kube-apiserver")
        os.kill(program, signal.SIGSTOP)
        try:
            wait_until(lambda: codes() == (500, 500), "the objects to be withheld", 60.0)
        finally:
            os.kill(program, signal.SIGCONT)
        wait_until(lambda: codes() == (200, 200), "the objects to be served again", 60.0)
        plane.kill("kube-apiserver")
        wait_until(lambda: codes() == (500, 500), "the objects to be withheld", 60.0)
        plane.restart("kube-apiserver")
        # Questions end the wait between two tries, whatever it has grown to.
        wait_until(lambda: codes() == (200, 200), "the objects to be served at once", 10.0)
    finally:
        running.stop()


def _children_of(plane, name):
    """Return the process ids of a program of the control plane."""
    for pid in plane.pids:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        yield from (
            int(child)
            for child in children
            if Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")[0].endswith(name.encode())
        )
