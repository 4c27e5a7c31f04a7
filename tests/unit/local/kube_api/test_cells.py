"""Cells of tables; cases by kubernetes pkg/printers/internalversion/printers_test.go, in our own words."""

import pytest

from gpuscale.base.objects.hpa import targets_text
from gpuscale.lab.kube_api.tables.cells import (
    label_selector,
    node_roles,
    pod_state,
    service_addresses,
    service_ports,
)


def pod(statuses=(), phase="Running", **more):
    status = {"phase": phase, "containerStatuses": list(statuses), **more.pop("status", {})}
    containers = [{"name": f"c{index}"} for index in range(2)]
    return {
        "metadata": more.pop("metadata", {}),
        "spec": {"containers": containers, **more},
        "status": status,
    }


RUNNING = {"state": {"running": {}}, "ready": True, "restartCount": 0}
DONE = {"state": {"terminated": {"reason": "Completed", "exitCode": 0}}, "restartCount": 0}
FAILED = {"state": {"terminated": {"exitCode": 7}}, "restartCount": 4}
WAITING = {"state": {"waiting": {"reason": "ContainerCreating"}}, "restartCount": 0}
READY = {"conditions": [{"type": "Ready", "status": "True"}]}


@pytest.mark.parametrize(
    ("item", "ready", "reason"),
    [
        (pod([RUNNING, RUNNING]), 2, "Running"),
        (pod([], "Pending"), 0, "Pending"),
        (pod([WAITING, WAITING], "Pending"), 0, "ContainerCreating"),
        (pod([DONE, DONE], "Succeeded"), 0, "Completed"),
        (pod([DONE, RUNNING], status=READY), 1, "Running"),
        (pod([DONE, RUNNING]), 1, "NotReady"),
        (pod([DONE, FAILED]), 0, "ExitCode:7"),
        (pod([FAILED, DONE]), 0, "ExitCode:7"),
        (pod([FAILED, FAILED]), 0, "ExitCode:7"),
        (pod([RUNNING], metadata={"deletionTimestamp": "x"}), 1, "Terminating"),
        (pod([DONE], "Succeeded", metadata={"deletionTimestamp": "x"}), 0, "Completed"),
        (pod([], status={"reason": "Evicted"}, phase="Failed"), 0, "Evicted"),
        (
            pod([], status={"reason": "NodeLost"}, metadata={"deletionTimestamp": "x"}),
            0,
            "Unknown",
        ),
        (
            pod(
                [],
                "Pending",
                status={"conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]},
            ),
            0,
            "SchedulingGated",
        ),
        (
            pod(
                [WAITING],
                "Pending",
                initContainers=[{"name": "i"}],
                status={"initContainerStatuses": [{"name": "i", "state": {"running": {}}}]},
            ),
            0,
            "Init:0/1",
        ),
    ],
)
def test_a_pod_shows_what_its_containers_do(item, ready, reason) -> None:
    state = pod_state(item)
    assert (state.ready, state.reason) == (ready, reason)


def test_restarts_of_all_containers_add_up() -> None:
    ended = {"terminated": {"finishedAt": "2026-01-01T00:00:00Z", "exitCode": 1}}
    again = {**RUNNING, "restartCount": 3, "lastState": ended}
    state = pod_state(pod([again, FAILED]))
    assert (state.restarts, state.last_restart) == (7, "2026-01-01T00:00:00Z")


def metric(kind, **target):
    sources: dict[str, dict[str, dict[str, object]]] = {
        "Pods": {"pods": {"metric": {"name": "m"}}},
        "Object": {"object": {"metric": {"name": "m"}}},
        "External": {"external": {"metric": {"name": "m"}}},
        "Resource": {"resource": {"name": "cpu"}},
        "ContainerResource": {"containerResource": {"name": "cpu", "container": "c"}},
    }
    ((field, source),) = sources[kind].items()
    return {"type": kind, field: {**source, "target": target}}


def status(kind, **current):
    field = next(key for key in metric(kind) if key != "type")
    return {"type": kind, field: {"current": current}}


@pytest.mark.parametrize(
    ("specs", "statuses", "text"),
    [
        ([], [], "<none>"),
        ([metric("Pods", averageValue="20")], [], "<unknown>/20"),
        ([metric("Pods", averageValue="20")], [{"type": ""}], "<unknown>/20"),
        ([metric("Pods", averageValue="20")], [status("Pods", averageValue="11500m")], "11500m/20"),
        ([metric("Object", value="30")], [status("Object", value="29")], "29/30"),
        (
            [metric("Object", averageValue="30")],
            [status("Object", averageValue="9")],
            "9/30 (avg)",
        ),
        ([metric("External", value="7")], [], "<unknown>/7"),
        (
            [metric("External", averageValue="7")],
            [status("External", averageValue="8")],
            "8/7 (avg)",
        ),
        (
            [metric("Resource", averageUtilization=80)],
            [status("Resource", averageUtilization=7, averageValue="7m")],
            "cpu: 7%/80%",
        ),
        ([metric("Resource")], [], "cpu: <unknown>/<auto>"),
        ([metric("Resource", averageValue="50m")], [], "cpu: <unknown>/50m"),
        ([metric("ContainerResource", averageUtilization=80)], [], "cpu: <unknown>/80%"),
        ([metric("Pods", averageValue="1")] * 4, [], "<unknown>/1, <unknown>/1 + 2 more..."),
    ],
)
def test_targets_of_an_hpa(specs, statuses, text) -> None:
    assert targets_text(specs, statuses) == text


def test_a_selector_is_sorted_by_key() -> None:
    selector = {
        "matchLabels": {"b": "2"},
        "matchExpressions": [
            {"key": "a", "operator": "In", "values": ["y", "x"]},
            {"key": "c", "operator": "DoesNotExist"},
        ],
    }
    assert label_selector(selector) == "a in (x,y),b=2,!c"


def test_roles_come_from_labels() -> None:
    labels = {
        "node-role.kubernetes.io/worker": "",
        "node-role.kubernetes.io/": "",
        "kubernetes.io/role": "gpu",
        "other": "x",
    }
    assert node_roles(labels) == "gpu,worker"


@pytest.mark.parametrize(
    ("spec", "status_", "addresses"),
    [
        ({"type": "ClusterIP", "clusterIPs": ["10.0.0.1"]}, {}, ("10.0.0.1", "<none>")),
        (
            {"type": "NodePort", "externalIPs": ["1.1.1.1", "2.2.2.2"]},
            {},
            ("<none>", "1.1.1.1,2.2.2.2"),
        ),
        ({"type": "LoadBalancer", "clusterIPs": ["10.0.0.1"]}, {}, ("10.0.0.1", "<pending>")),
        (
            {"type": "LoadBalancer", "externalIPs": ["3.3.3.3"]},
            {"loadBalancer": {"ingress": [{"ip": "2.2.2.2"}, {"hostname": "a.example"}]}},
            ("<none>", "2.2.2.2,a.example,3.3.3.3"),
        ),
        ({"type": "ExternalName", "externalName": "db.example"}, {}, ("<none>", "db.example")),
    ],
)
def test_addresses_of_a_service(spec, status_, addresses) -> None:
    assert service_addresses({"spec": spec, "status": status_}) == addresses


def test_ports_of_a_service() -> None:
    ports = [{"port": 80, "protocol": "TCP"}, {"port": 53, "nodePort": 30053, "protocol": "UDP"}]
    assert service_ports(ports) == "80/TCP,53:30053/UDP"
