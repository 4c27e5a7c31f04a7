"""An installation whose Prometheus is an Azure Monitor workspace, and KEDA's own trigger on Azure Monitor."""

import pytest
from install_values import container, one, rendered, scale, values
from pydantic import ValidationError

from gpuscale.ops.install.cluster.kinds import path_of
from gpuscale.ops.install.noted import notes

ID = "00000000-0000-0000-0000-0000000000aa"
OTHER = "00000000-0000-0000-0000-0000000000bb"
URL = "https://training-abcd.eastus.prometheus.monitor.azure.com"
WORKSPACE = {"kind": "azure", "url": URL, "identity": ID}
SOURCE: dict[str, object] = {
    "resourceUri": "Microsoft.ServiceBus/namespaces/training",
    "tenantId": OTHER,
    "subscriptionId": ID,
    "resourceGroupName": "ml",
    "metricName": "ActiveMessages",
    "metricFilter": "EntityName eq 'jobs'",
    "metricAggregationType": "Average",
    "target": 4.5,
}
QUEUE = {"type": "AzureMonitor", "azureMonitor": SOURCE}


def scaled(*metrics, **changes):
    found = {**scale(autoscaler="keda", metrics=list(metrics), **changes)}
    found.pop("target")
    return found


@pytest.mark.parametrize("part", ["metrics-api", "scaler"])
def test_who_asks_the_workspace_has_its_identity(part: str) -> None:
    objects = rendered(values(prometheus=WORKSPACE, scale=[scale(autoscaler="keda")]))
    found = one(objects, "Deployment", part)
    labels = found["spec"]["template"]["metadata"]["labels"]
    assert labels["azure.workload.identity/use"] == "true"
    assert "azure.workload.identity/use" not in found["spec"]["selector"]["matchLabels"]
    account = one(objects, "ServiceAccount", part)
    assert account["metadata"]["annotations"] == {"azure.workload.identity/client-id": ID}
    assert f"--prometheus-url={URL}" in container(found)["args"]
    assert "--prometheus-identity=azure-workload" in container(found)["args"]


def test_no_other_pod_has_it() -> None:
    objects = rendered(values(prometheus=WORKSPACE))
    agent = one(objects, "DaemonSet", "node-agent")
    assert "azure.workload.identity/use" not in agent["spec"]["template"]["metadata"]["labels"]
    streams = rendered(values(prometheus=WORKSPACE, metricsApi={"source": "streams"}))
    api = one(streams, "Deployment", "metrics-api")
    assert "--prometheus-identity=azure-workload" not in container(api)["args"]
    assert "azure.workload.identity/use" not in api["spec"]["template"]["metadata"]["labels"]


def test_what_no_object_can_do_is_noted() -> None:
    (note,) = notes(values(prometheus=WORKSPACE, scale=[scale(autoscaler="keda")]))
    accounts = "gpuscale:gpuscale-metrics-api and gpuscale:gpuscale-scaler"
    assert f"federated credential for the service account {accounts}, and the role" in note
    mine = {"serviceAccount": {"create": False, "name": "mine"}}
    (note,) = notes(values(prometheus=WORKSPACE, metricsApi=mine))
    assert "service account gpuscale:mine, and the role" in note
    (note,) = notes(values(prometheus={"kind": "plain", "url": URL}))
    assert "set prometheus.kind: azure and prometheus.identity" in note
    token = {"authorization": {"credentials": {"name": "s", "key": "k"}}}
    assert notes(values(prometheus={"kind": "plain", "url": URL, "auth": token})) == []


def test_an_annotation_of_the_users_own_wins() -> None:
    mine = {"annotations": {"azure.workload.identity/client-id": OTHER}}
    objects = rendered(values(prometheus=WORKSPACE, metricsApi={"serviceAccount": mine}))
    account = one(objects, "ServiceAccount", "metrics-api")
    assert account["metadata"]["annotations"] == mine["annotations"]


def test_aks_scraper_gets_monitors_of_its_own_group() -> None:
    servers = [scale(signal="vllm-waiting", target=4)]
    objects = rendered(values(prometheus=WORKSPACE, scale=servers))
    monitors = [each for each in objects if each["kind"].endswith("Monitor")]
    names = {each["metadata"]["name"] for each in monitors}
    # The metrics API takes a right to get /metrics that AKS' scraper does not have.
    assert names == {"gpuscale-node-agent", "gpuscale-model-servers"}
    for each in monitors:
        assert each["apiVersion"] == "azmonitoring.coreos.com/v1"
        limits = ("labelLimit", "labelNameLengthLimit", "labelValueLengthLimit")
        assert [each["spec"][name] for name in limits] == [63, 511, 1023]
    (rules,) = [each for each in objects if each["metadata"]["name"] == "gpuscale-monitoring"]
    assert (rules["kind"], sorted(rules["data"])) == (
        "ConfigMap",
        ["alerts.yaml", "recording.yaml"],
    )


@pytest.mark.parametrize(
    ("prometheus", "words"),
    [
        ({"kind": "azure", "url": URL}, "found kind azure without identity"),
        ({"kind": "azure", "identity": ID}, "found kind azure without url"),
        ({**WORKSPACE, "url": "http://w.example"}, "expected https://"),
        ({**WORKSPACE, "identity": "mine"}, "identity"),
        ({"kind": "plain", "url": URL, "identity": ID}, "expected kind: azure"),
        (
            {**WORKSPACE, "auth": {"authorization": {"credentials": {"name": "s", "key": "k"}}}},
            "with kind azure, expected none",
        ),
    ],
)
def test_what_does_not_go_together(prometheus, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        values(prometheus=prometheus)


@pytest.mark.parametrize(
    ("keda", "prometheus", "identity"),
    [
        ({"azureIdentity": OTHER}, {"kind": "plain", "url": URL}, OTHER),
        ({}, WORKSPACE, ID),
        ({"azureIdentity": OTHER}, WORKSPACE, OTHER),
    ],
)
def test_keda_asks_the_workspace_as_an_identity(keda, prometheus, identity: str) -> None:
    scales = [
        scale(autoscaler="keda"),
        scale(workload={"name": "b", "namespace": "ml"}, autoscaler="keda"),
        scale(workload={"name": "c", "namespace": "other"}),
    ]
    given = {"trigger": "prometheus", **keda}
    objects = rendered(values(keda=given, prometheus=prometheus, scale=scales))
    found = [each for each in objects if each["kind"] == "TriggerAuthentication"]
    # KEDA looks for it in the ScaledObject's own namespace.
    assert [each["metadata"]["namespace"] for each in found] == ["default", "ml"]
    for each in found:
        pod_identity = {"provider": "azure-workload", "identityId": identity}
        assert each["spec"] == {"podIdentity": pod_identity}
    for each in objects:
        if each["kind"] == "ScaledObject":
            (trigger,) = each["spec"]["triggers"]
            assert trigger["authenticationRef"] == {"name": found[0]["metadata"]["name"]}
            assert trigger["metadata"]["serverAddress"] == URL


def test_an_identity_that_nothing_asks_with() -> None:
    with pytest.raises(ValidationError, match="expected trigger: prometheus, or a metric of type"):
        values(keda={"azureIdentity": ID})


def test_a_metric_of_azure_monitor_is_kedas_own_trigger() -> None:
    scales = [scaled({"target": 60}, QUEUE, minReplicas=0)]
    objects = rendered(values(keda={"azureIdentity": ID}, scale=scales))
    spec = one(objects, "ScaledObject")["spec"]
    gpus, queue = spec["triggers"]
    assert gpus["type"] == "external-push"
    assert queue == {
        "type": "azure-monitor",
        "metricType": "AverageValue",
        "authenticationRef": {"name": "gpuscale-azure"},
        "metadata": {
            "resourceURI": "Microsoft.ServiceBus/namespaces/training",
            "tenantId": OTHER,
            "subscriptionId": ID,
            "resourceGroupName": "ml",
            "metricName": "ActiveMessages",
            "metricFilter": "EntityName eq 'jobs'",
            "metricAggregationType": "Average",
            "metricAggregationInterval": "0:5:0",
            "targetValue": "4.5",
        },
    }
    assert spec["fallback"]["replicas"] == 1
    who = one(objects, "TriggerAuthentication")
    assert who["spec"]["podIdentity"] == {"provider": "azure-workload", "identityId": ID}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"resourceUri": "training"}, "resourceUri"),
        ({"metricAggregationType": "Mean"}, "metricAggregationType"),
        ({"metricAggregationInterval": "5m"}, "metricAggregationInterval"),
        ({"target": 0}, "target"),
        ({"tenantId": "contoso"}, "tenantId"),
    ],
)
def test_what_keda_would_refuse_is_refused(changes, words: str) -> None:
    metric = {**QUEUE, "azureMonitor": {**SOURCE, **changes}}
    with pytest.raises(ValidationError, match=words):
        values(keda={"azureIdentity": ID}, scale=[scaled(metric)])


def test_where_a_metric_of_azure_monitor_does_not_go() -> None:
    with pytest.raises(ValidationError, match="with autoscaler hpa, expected keda"):
        values(scale=[{**scaled(QUEUE), "autoscaler": "hpa"}])
    with pytest.raises(ValidationError, match=r"without keda\.azureIdentity"):
        values(scale=[scaled(QUEUE)])


def test_the_command_knows_where_each_object_is() -> None:
    scales = [scale(signal="vllm-waiting", target=4, autoscaler="keda")]
    objects = rendered(values(prometheus=WORKSPACE, scale=scales))
    monitors = [path_of(each) for each in objects if each["apiVersion"].startswith("azmonitoring")]
    base = "/apis/azmonitoring.coreos.com/v1/namespaces"
    assert {each.rpartition("/")[0] for each in monitors} == {
        f"{base}/gpuscale/podmonitors",
        f"{base}/gpuscale/servicemonitors",
    }
    assert all(path_of(each) for each in objects)
