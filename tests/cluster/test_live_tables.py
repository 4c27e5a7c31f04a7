"""Objects of `gpuscale up` in a real API server: what it shows of them in tables has to be what we show.

The programs that would act on the objects are stopped first. Each object is created with its status; then the
server's table is held against ours of the objects that it stored, cell by cell, and against ours of the
objects that we serve, but for what a server gives each object itself: its age, addresses and ports.
"""

import json
import time
from copy import deepcopy

import pytest

from gpuscale.base.documents.documents import load_documents
from gpuscale.lab.kube_api.conversion import converted
from gpuscale.lab.kube_api.kinds import (
    DAEMON_SET,
    DEPLOYMENT,
    ENDPOINT_SLICE,
    EVENT,
    HPA,
    HPA_V1,
    JOB,
    LEASE,
    NEW_EVENT,
    NODE,
    POD,
    REPLICA_SET,
    SERVICE,
    ApiResource,
)
from gpuscale.lab.kube_api.tables.table import table
from gpuscale_testing import ControlPlane
from live_objects import shipped

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster"), pytest.mark.timeout(300)]
AS_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
MOMENTS = (
    ("ack-bert", 130),  # a pod that fits nowhere
    ("ack-bert", 225),  # one whose image is being pulled
    ("eks-vision", 620),
    ("aks-mnist-jobs", 400),  # completed, running and waiting Jobs
    ("keda-zero", 700),
)
KINDS = (
    NODE,
    SERVICE,
    ENDPOINT_SLICE,
    LEASE,
    DEPLOYMENT,
    REPLICA_SET,
    DAEMON_SET,
    POD,
    JOB,
    HPA,
    EVENT,
)
GIVEN_BY_SERVERS = {"Age", "Cluster-IP", "Port(s)", "Last Seen", "First Seen", "Duration"}


@pytest.fixture(scope="module")
def quiet(plane: ControlPlane) -> ControlPlane:
    """A control plane in which nothing acts on objects."""
    plane.kill("kube-controller-manager")
    plane.kill("kube-scheduler")
    return plane


def collection(kind: ApiResource, namespace: str) -> str:
    root = f"/apis/{kind.group}" if kind.group else "/api"
    place = f"namespaces/{namespace}/" if kind.is_namespaced else ""
    return f"{root}/{kind.version}/{place}{kind.plural}"


def creatable(kind: ApiResource, body: dict) -> dict:
    """Return an object without what only a server may set."""
    made = deepcopy(body)
    for name in ("uid", "resourceVersion", "creationTimestamp", "generation", "ownerReferences"):
        made["metadata"].pop(name, None)
    made.pop("status", None)
    if kind is SERVICE:
        for name in ("clusterIP", "clusterIPs"):
            if made["spec"].get(name) not in ("None", ["None"]):
                made["spec"].pop(name, None)
        for port in made["spec"].get("ports", ()):
            port.pop("nodePort", None)
    if kind is JOB:
        made["spec"]["manualSelector"] = True  # else the server makes one of the UID that it gives
    return made


async def stored_by(
    plane: ControlPlane, kind: ApiResource, bodies: list[dict]
) -> tuple[dict, list, list]:
    """Return the server's table of objects, the objects that it stored, and the times around."""
    async with plane.client() as client:
        for body in bodies:
            path = collection(kind, body["metadata"].get("namespace", ""))
            made = await client.create(path, creatable(kind, body))
            if "status" in body:
                place = f"{path}/{body['metadata']['name']}/status"
                await client.replace(place, {**made, "status": body["status"]})
        everything = collection(kind, "").replace("namespaces//", "")
        names = {body["metadata"]["name"] for body in bodies}
        listed = await client.get(everything)
        before_ms = time.time_ns() // 1_000_000
        shown = await client.get(everything, accept=AS_TABLE)
        after_ms = time.time_ns() // 1_000_000
        for body in bodies:
            path = collection(kind, body["metadata"].get("namespace", ""))
            options = {"gracePeriodSeconds": 0}
            await client.delete(f"{path}/{body['metadata']['name']}", options)
    shown["rows"] = [row for row in shown["rows"] if row["object"]["metadata"]["name"] in names]
    items = [item for item in listed["items"] if item["metadata"]["name"] in names]
    return shown, items, [before_ms, after_ms]


def described(columns: list[dict]) -> list[tuple]:
    return [(each["name"], each["type"], each["format"], each["priority"]) for each in columns]


@pytest.mark.parametrize(("scenario", "seconds"), MOMENTS)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.plural)
async def test_tables_are_those_of_the_api_server(
    quiet: ControlPlane, kind: ApiResource, scenario: str, seconds: int
) -> None:
    ours = shipped(scenario).run_to(seconds).bodies(kind.resource)
    if not ours:
        pytest.skip(f"{scenario} has no {kind.plural}")
    shown, stored, times_ms = await stored_by(quiet, kind, ours)
    again = [table(kind, stored, {}, now_ms) for now_ms in times_ms]
    assert described(again[0]["columnDefinitions"]) == described(shown["columnDefinitions"])
    assert len(shown["rows"]) == len(ours)
    for index, row in enumerate(shown["rows"]):
        mine = [each["rows"][index] for each in again]
        assert row["cells"] in [each["cells"] for each in mine]
        assert row.get("conditions") == mine[0].get("conditions")
        for name in ("name", "labels", "resourceVersion"):
            shown_meta, my_meta = row["object"]["metadata"], mine[0]["object"]["metadata"]
            assert shown_meta.get(name) == my_meta.get(name)
    heads = [each["name"] for each in shown["columnDefinitions"]]
    by_name = {row["object"]["metadata"]["name"]: row["cells"] for row in shown["rows"]}
    for row in table(kind, ours, {}, times_ms[0])["rows"]:
        theirs = by_name[row["object"]["metadata"]["name"]]
        for head, cell, other in zip(heads, row["cells"], theirs, strict=True):
            if head not in GIVEN_BY_SERVERS:
                assert cell == other, head


def pod(name: str, status: dict, **spec) -> dict:
    containers = [{"name": each, "image": "none"} for each in ("main", "side")]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": containers, **spec},
        "status": status,
    }


def container(name: str, state: dict, restarts: int = 0, **more) -> dict:
    common = {"image": "none", "imageID": "", "ready": "running" in state}
    return {"name": name, "state": state, "restartCount": restarts, **common, **more}


RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
WAITING = {"waiting": {"reason": "CrashLoopBackOff"}}
PLAIN_WAIT = {"waiting": {"reason": "PodInitializing"}}
DONE = {"terminated": {"exitCode": 0, "reason": "Completed"}}
FAILED = {"terminated": {"exitCode": 137, "reason": "Error", "finishedAt": "2026-01-01T00:00:00Z"}}
KILLED = {"terminated": {"exitCode": 137, "signal": 9}}
CODE = {"terminated": {"exitCode": 3}}
READY = [{"type": "Ready", "status": "True"}]
GATES = [{"conditionType": "example.com/a"}, {"conditionType": "example.com/b"}]
START = [{"name": "first", "image": "none"}, {"name": "second", "image": "none"}]
SIDECAR = [{"name": "first", "image": "none", "restartPolicy": "Always"}]


def phase(phase: str, *statuses: dict, **more) -> dict:
    return {"phase": phase, "containerStatuses": list(statuses), **more}


ODD_PODS = [
    pod(
        "crash",
        phase(
            "Running", container("main", WAITING, 5, lastState=FAILED), container("side", RUNNING)
        ),
    ),
    pod("half", phase("Running", container("main", DONE), container("side", RUNNING))),
    pod(
        "half-ready",
        phase("Running", container("main", DONE), container("side", RUNNING), conditions=READY),
    ),
    pod("killed", phase("Failed", container("main", KILLED), container("side", CODE))),
    pod("code", phase("Failed", container("main", DONE), container("side", CODE))),
    pod("evicted", phase("Failed", reason="Evicted")),
    pod("nothing", {"phase": "Pending"}),
    pod("gated", {"phase": "Pending"}, schedulingGates=[{"name": "example.com/a"}]),
    pod(
        "gates",
        phase("Running", conditions=[*READY, {"type": "example.com/a", "status": "True"}]),
        readinessGates=GATES,
    ),
    pod(
        "starting",
        phase(
            "Pending",
            initContainerStatuses=[container("first", DONE), container("second", RUNNING)],
        ),
        initContainers=START,
    ),
    pod(
        "start-fails",
        phase("Pending", initContainerStatuses=[container("first", FAILED, 2)]),
        initContainers=START,
    ),
    pod(
        "start-code",
        phase("Pending", initContainerStatuses=[container("first", CODE)]),
        initContainers=START,
    ),
    pod(
        "start-waits",
        phase("Pending", initContainerStatuses=[container("first", WAITING)]),
        initContainers=START,
    ),
    pod(
        "start-begins",
        phase("Pending", initContainerStatuses=[container("first", PLAIN_WAIT)]),
        initContainers=START,
    ),
    pod(
        "sidecar",
        phase(
            "Running",
            container("main", RUNNING, 1, lastState=FAILED),
            container("side", RUNNING),
            initContainerStatuses=[container("first", RUNNING, 2, started=True, lastState=FAILED)],
        ),
        initContainers=SIDECAR,
    ),
]


def endpoints(count: int) -> dict:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": f"with-{count}", "namespace": "default"},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [f"10.0.0.{each + 1}"]} for each in range(count)],
        "ports": [
            {"name": f"p{each}", "port": 80 + each, "protocol": "TCP"} for each in range(count)
        ],
    }


async def test_many_endpoints_are_shown_as_by_the_api_server(quiet: ControlPlane) -> None:
    slices = [endpoints(count) for count in (0, 1, 3, 5)]
    shown, stored, times_ms = await stored_by(quiet, ENDPOINT_SLICE, slices)
    mine = table(ENDPOINT_SLICE, stored, {}, times_ms[0])["rows"]
    assert [row["cells"][:-1] for row in mine] == [row["cells"][:-1] for row in shown["rows"]]


async def test_odd_pods_are_shown_as_by_the_api_server(quiet: ControlPlane) -> None:
    shown, stored, times_ms = await stored_by(quiet, POD, ODD_PODS)
    assert len(shown["rows"]) == len(ODD_PODS)
    again = [table(POD, stored, {}, now_ms)["rows"] for now_ms in times_ms]
    for index, row in enumerate(shown["rows"]):
        assert row["cells"] in [rows[index]["cells"] for rows in again]


EVERY_METRIC = """
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: every, namespace: default}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 2
  maxReplicas: 5
  behavior: {scaleDown: {stabilizationWindowSeconds: 60}}
  metrics:
  - {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 60}}}
  - {type: Resource, resource: {name: memory, target: {type: AverageValue, averageValue: 1Gi}}}
  - type: ContainerResource
    containerResource: {name: cpu, container: main, target: {type: Utilization, averageUtilization: 50}}
  - {type: Pods, pods: {metric: {name: a}, target: {type: AverageValue, averageValue: 1500m}}}
  - type: Object
    object:
      describedObject: {apiVersion: v1, kind: Service, name: web}
      metric: {name: b, selector: {matchLabels: {x: y}}}
      target: {type: AverageValue, averageValue: "7"}
  - type: Object
    object: {describedObject: {kind: Node, name: n}, metric: {name: c}, target: {type: Value, value: 2k}}
  - {type: External, external: {metric: {name: d}, target: {type: Value, value: "9"}}}
"""


async def test_every_metric_in_v1_is_that_of_the_api_server(quiet: ControlPlane) -> None:
    (document,) = load_documents(EVERY_METRIC, "hpa.yaml")
    assert isinstance(document.data, dict)
    manifest = document.data
    shown, stored, _ = await stored_by(quiet, HPA, [manifest])
    async with quiet.client() as client:
        path = collection(HPA, "default")
        newer = await client.create(path, manifest)
        older = await client.get(f"{path.replace('/v2/', '/v1/')}/every")
        await client.delete(f"{path}/every")
    assert plain(converted(HPA_V1, newer)) == plain(older)
    (row,) = table(HPA, stored, {}, time.time_ns() // 1_000_000)["rows"]
    assert row["cells"][:-1] == shown["rows"][0]["cells"][:-1]


async def test_hpas_in_v1_are_those_of_the_api_server(quiet: ControlPlane) -> None:
    for scenario in ("ack-bert", "eks-vision", "keda-zero"):
        (ours,) = shipped(scenario).run_to(700).bodies(HPA.resource)
        async with quiet.client() as client:
            path = collection(HPA, "default")
            place = f"{path}/{ours['metadata']['name']}"
            made = await client.create(path, creatable(HPA, ours))
            await client.replace(f"{place}/status", {**made, "status": ours["status"]})
            newer = await client.get(place)
            older = await client.get(place.replace("/v2/", "/v1/"))
            await client.delete(place)
        mine = converted(HPA_V1, newer)
        assert plain(mine) == plain(older)


async def test_new_events_are_those_of_the_api_server(quiet: ControlPlane) -> None:
    ours = shipped("ack-bert").run_to(400).bodies(EVENT.resource)
    async with quiet.client() as client:
        for body in ours:
            path = collection(EVENT, "default")
            await client.create(path, creatable(EVENT, body))
        core = (await client.get(collection(EVENT, "default")))["items"]
        newer = (await client.get(collection(NEW_EVENT, "default")))["items"]
        for body in ours:
            await client.delete(f"{collection(EVENT, 'default')}/{body['metadata']['name']}")
    # The control plane may have written events of its own between the two answers.
    names = {body["metadata"]["name"] for body in ours}
    core, newer = (
        [body for body in bodies if body["metadata"]["name"] in names] for bodies in (core, newer)
    )
    assert len(core) == len(newer) == len(names)
    for old, new in zip(core, newer, strict=True):
        mine = converted(NEW_EVENT, old)
        for body in (mine, new):
            for name in ("kind", "apiVersion"):
                body.pop(name, None)  # items of lists go without them
            body["metadata"].pop("managedFields", None)
        assert mine == new


def plain(hpa: dict) -> dict:
    """Return an HPA of v1 with its annotations read, so that their spaces and order don't count."""
    meta = hpa["metadata"]
    read = {key: json.loads(text) for key, text in meta.get("annotations", {}).items()}
    return {"spec": hpa["spec"], "status": hpa["status"], "annotations": read}
