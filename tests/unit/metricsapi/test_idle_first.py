"""When an HPA is about to take pods away, and which deletion costs are whose."""

import pytest

from gpuscale.hpa.cluster.victims import DELETION_COST
from gpuscale.server.metricsapi.idle_first.marks import MANAGER, read_pods
from gpuscale.server.metricsapi.idle_first.outlook import leaving, target_of
from gpuscale.server.metricsapi.idle_first_settings import IdleFirst, idle_first_of


def pods_metric(value: str | None, target: str = "10") -> tuple[dict, dict]:
    """Return a Pods metric of the spec, and of the status with this mean; None: it has no value."""
    wanted = {"type": "AverageValue", "averageValue": target}
    spec = {"type": "Pods", "pods": {"metric": {"name": "in_flight"}, "target": wanted}}
    if value is None:
        return spec, {"type": ""}
    return spec, {"type": "Pods", "pods": {"current": {"averageValue": value}}}


def cpu_metric(percent: int, target: int) -> tuple[dict, dict]:
    wanted = {"type": "Utilization", "averageUtilization": target}
    spec = {"type": "Resource", "resource": {"name": "cpu", "target": wanted}}
    current = {"averageUtilization": percent, "averageValue": "1"}
    return spec, {"type": "Resource", "resource": {"current": current}}


def hpa(*metrics, current=10, desired=10, least=2, **rules) -> dict:
    target = {"kind": "Deployment", "name": "chat"}
    spec = {
        "scaleTargetRef": target,
        "minReplicas": least,
        "metrics": [spec for spec, _ in metrics],
    }
    if rules:
        spec["behavior"] = {"scaleDown": rules}
    seen = [status for _, status in metrics]
    counts = {"currentReplicas": current, "desiredReplicas": desired}
    return {"spec": spec, "status": {**counts, "currentMetrics": seen}}


@pytest.mark.parametrize(
    ("seen", "count"),
    [
        # ceil(10 * 4 / 10) = 4 are wanted.
        (hpa(pods_metric("4")), 6),
        (hpa(pods_metric("4100m")), 5),
        # The most of all metrics: cpu wants ceil(10 * 56 / 80) = 7.
        (hpa(pods_metric("4"), cpu_metric(56, 80)), 3),
        # Above 0.9 is near enough to the target, with the controller's tolerance.
        (hpa(pods_metric("9500m")), 0),
        (hpa(pods_metric("9500m"), tolerance="0.01"), 0),
        (hpa(pods_metric("8900m"), tolerance="0.01"), 1),
        (hpa(pods_metric("12")), 0),
        # Never below the minimum.
        (hpa(pods_metric("1"), least=7), 3),
        (hpa(pods_metric("1"), current=2), 0),
        (hpa(pods_metric("1"), selectPolicy="Disabled"), 0),
        # A metric without a value blocks a scale-in.
        (hpa(pods_metric("4"), pods_metric(None)), 0),
        (hpa(), 0),
        # A short window leaves no time: any value below the target counts, and one pod may leave.
        (hpa(pods_metric("9500m"), stabilizationWindowSeconds=0), 1),
        (hpa(pods_metric("9500m"), stabilizationWindowSeconds=60), 0),
        (hpa(pods_metric("10"), stabilizationWindowSeconds=0), 0),
        # What is ordered already.
        (hpa(pods_metric("10"), desired=8), 2),
        ({}, 0),
        ({"spec": None, "status": {"currentReplicas": "ten"}}, 0),
        (hpa(pods_metric("much")), 0),
        (hpa(pods_metric("4", target="0")), 0),
    ],
)
def test_how_many_pods_may_leave(seen: dict, count: int) -> None:
    assert leaving(seen) == count


def test_whose_hpa_it_is() -> None:
    assert target_of(hpa()) == ("Deployment", "chat")
    assert target_of({"spec": []}) == ("", "")


def pod(name: str, cost: str | None, *managers: str, **meta: object) -> dict:
    annotations = {"team": "a"} if cost is None else {"team": "a", DELETION_COST: cost}
    fields = {"f:metadata": {"f:annotations": {f"f:{DELETION_COST}": {}}}}
    managed = [{"manager": each, "fieldsV1": fields} for each in managers]
    managed.append({"manager": "kubelet", "fieldsV1": {"f:status": {}}})
    found = {"name": name, "resourceVersion": "7", "annotations": annotations}
    return {"metadata": {**found, "managedFields": managed, **meta}}


def test_a_cost_is_ours_if_nobody_else_wrote_it() -> None:
    items = [
        pod("none", None),
        pod("ours", "-1000", MANAGER),
        pod("users", "5", "kubectl-annotate"),
        pod("template", "5", "kube-controller-manager"),
        pod("both", "-1000", MANAGER, "kubectl-annotate"),
        pod("leaving", "-1000", MANAGER, deletionTimestamp="2026-01-01T00:00:00Z"),
    ]
    seen = {each.name: (each.cost, each.is_others) for each in read_pods({"items": items})}
    assert seen == {
        "none": (None, False),
        "ours": (-1000, False),
        "users": (5, True),
        "template": (5, True),
        "both": (-1000, True),
    }


def test_a_patch_is_for_the_pod_as_it_was_read() -> None:
    path = "/metadata/annotations/controller.kubernetes.io~1pod-deletion-cost"
    test = {"op": "test", "path": "/metadata/resourceVersion", "value": "7"}
    (found,) = read_pods({"items": [pod("a", "-1000", MANAGER)]})
    assert found.patch(-992) == [test, {"op": "add", "path": path, "value": "-992"}]
    assert found.patch(None) == [test, {"op": "remove", "path": path}]
    (bare,) = read_pods({"items": [{"metadata": {"name": "b", "resourceVersion": "7"}}]})
    value = {DELETION_COST: "-1000"}
    assert bare.patch(-1000) == [
        test,
        {"op": "add", "path": "/metadata/annotations", "value": value},
    ]


def test_answers_that_are_no_lists_have_no_pods() -> None:
    assert list(read_pods({})) == list(read_pods({"items": "all"})) == []


def test_the_flag_names_a_deployment_and_a_metric() -> None:
    found = idle_first_of("prod/chat=vllm:num_requests_running")
    assert found == IdleFirst("prod", "chat", "vllm:num_requests_running")


@pytest.mark.parametrize(
    "text", ["", "chat=m", "prod/chat", "prod/chat=", "prod/=m", "/chat=m", "a/b/c=m", "a/b=*"]
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected NAMESPACE/DEPLOYMENT=METRIC"):
        idle_first_of(text)
