"""What can be set of the pods of every part, and how the metrics API gets into a Prometheus."""

import pytest
from install_values import container, one, pod, rendered

from gpuscale.base.errors import ConfigError
from gpuscale.ops.install.values import Values, parse_values

URL = {"kind": "operator", "url": "https://prom.example.com"}
KEY = {"name": "prom", "key": "password"}
PARTS = {
    "agent": ("DaemonSet", "node-agent"),
    "devicePlugin": ("DaemonSet", "device-plugin"),
    "metricsApi": ("Deployment", "metrics-api"),
    "prometheus": ("Deployment", "prometheus"),
}


def objects(**spec):
    return rendered(Values.model_validate({"spec": spec}))


def workload(part, **settings):
    enabled = {"enabled": True} if part == "devicePlugin" else {}
    return one(objects(**{part: {**enabled, **settings}}), *PARTS[part])


def problem(text):
    with pytest.raises(ConfigError) as caught:
        parse_values(text, "values.yaml")
    return str(caught.value)


@pytest.mark.parametrize("part", PARTS)
def test_every_part_takes_the_usual_fields_of_its_pods(part) -> None:
    """Where they stand is Kubernetes' own: the fields of PodSpec and Container."""
    found = workload(
        part,
        resources={"limits": {"memory": "3Gi"}},
        nodeSelector={"pool": "x"},
        tolerations=[{"key": "CriticalAddonsOnly", "operator": "Exists"}],
        priorityClassName="mine",
        podAnnotations={"a": "b"},
        podLabels={"azure.workload.identity/use": "true"},
        extraArgs=["--flag"],
        extraEnv=[{"name": "A", "value": "b"}],
        extraVolumes=[{"name": "v", "emptyDir": {}}],
        extraVolumeMounts=[{"name": "v", "mountPath": "/v"}],
        imagePullSecrets=[{"name": "registry"}],
        hostNetwork=True,
    )
    spec, metadata = pod(found), found["spec"]["template"]["metadata"]
    assert container(found)["resources"]["limits"] == {"memory": "3Gi"}
    assert spec["nodeSelector"] == {"pool": "x"}
    assert spec["tolerations"] == [{"key": "CriticalAddonsOnly", "operator": "Exists"}]
    assert spec["priorityClassName"] == "mine"
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert (spec["hostNetwork"], spec["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert metadata["annotations"] == {"a": "b"}
    assert metadata["labels"]["azure.workload.identity/use"] == "true"
    assert set(found["spec"]["selector"]["matchLabels"]) < set(metadata["labels"])
    assert container(found)["args"][-1] == "--flag"
    assert container(found)["env"][-1] == {"name": "A", "value": "b"}
    assert spec["volumes"][-1] == {"name": "v", "emptyDir": {}}
    assert container(found)["volumeMounts"][-1] == {"name": "v", "mountPath": "/v"}


def test_mappings_are_merged_and_null_removes() -> None:
    found = workload("agent", resources={"limits": {"memory": None, "cpu": "1"}})
    assert container(found)["resources"] == {
        "requests": {"cpu": "20m", "memory": "96Mi"},
        "limits": {"cpu": "1"},
    }
    changed = container(workload("metricsApi", securityContext={"runAsUser": 5}))
    assert changed["securityContext"]["runAsUser"] == 5
    assert changed["securityContext"]["readOnlyRootFilesystem"] is True


def test_an_affinity_replaces_the_gpu_nodes_and_an_empty_one_is_none() -> None:
    assert "nodeAffinity" in pod(workload("agent"))["affinity"]
    assert "affinity" not in pod(workload("agent", affinity={}))


@pytest.mark.parametrize("part", PARTS)
def test_a_service_account_can_carry_a_clouds_identity(part) -> None:
    role = {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/r"}
    enabled = {"enabled": True} if part == "devicePlugin" else {}
    found = objects(**{part: {**enabled, "serviceAccount": {"annotations": role}}})
    account = one(found, "ServiceAccount", PARTS[part][1])
    assert account["metadata"]["annotations"] == role


def test_an_account_that_is_there_gets_the_rights_and_is_not_made() -> None:
    found = objects(metricsApi={"serviceAccount": {"create": False, "name": "shared"}})
    accounts = [each["metadata"]["name"] for each in found if each["kind"] == "ServiceAccount"]
    assert "gpuscale-metrics-api" not in accounts
    assert pod(one(found, "Deployment", "metrics-api"))["serviceAccountName"] == "shared"
    delegator = one(found, "ClusterRoleBinding", "delegator")
    assert [each["name"] for each in delegator["subjects"]] == ["shared"]


def test_only_named_peers_and_the_installation_reach_the_agent() -> None:
    peer = {"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}
    found = objects(agent={"networkPolicy": {"from": [peer]}})
    (rule,) = one(found, "NetworkPolicy", "node-agent")["spec"]["ingress"]
    ours = {"app.kubernetes.io/name": "gpuscale", "app.kubernetes.io/instance": "gpuscale"}
    assert rule["from"] == [peer, {"podSelector": {"matchLabels": ours}}]
    assert rule["ports"] == [{"port": 9400, "protocol": "TCP"}]


def test_a_digest_pins_the_image() -> None:
    digest = "sha256:" + "a" * 64
    found = objects(image={"repository": "r.example.com/g", "tag": "1", "digest": digest})
    used = container(one(found, "DaemonSet", "node-agent"))["image"]
    assert used == f"r.example.com/g:1@{digest}"


def test_counters_in_the_values_become_a_file_of_the_agent() -> None:
    text = "DCGM_FI_DEV_GPU_TEMP, gauge, Temperature.\n"
    found = objects(agent={"customMetrics": text})
    assert one(found, "ConfigMap", "node-agent")["data"] == {"counters.csv": text}
    agent = one(found, "DaemonSet", "node-agent")
    assert container(agent)["args"][-1] == "--collectors=/etc/gpuscale/counters/counters.csv"
    (volume,) = [each for each in pod(agent)["volumes"] if each["name"] == "counters"]
    assert volume["configMap"]["name"] == "gpuscale-node-agent"


@pytest.mark.parametrize(
    ("limit", "series"),
    [
        # docs/sizing.md: 400 MiB for all but the store, 320 series for each further MiB.
        ("1Gi", 320 * (1024 - 400)),
        ("2Gi", 320 * (2048 - 400)),
        ("448Mi", 320 * 48),
        ("1073741824", 320 * (1024 - 400)),
        ("1G", 320 * (953 - 400)),
    ],
)
def test_the_memory_limit_says_what_the_store_may_hold(limit: str, series) -> None:
    api = {"source": "streams", "resources": {"limits": {"memory": limit}}}
    found = container(one(objects(metricsApi=api), "Deployment", "metrics-api"))
    assert f"--store-max-series={series}" in found["args"]
    assert f"--store-max-samples={100 * series}" in found["args"]
    assert found["resources"]["limits"]["memory"] == limit


def test_without_a_limit_the_programs_own_bounds_hold() -> None:
    api = {"source": "streams", "resources": {"limits": {"memory": None}}}
    found = container(one(objects(metricsApi=api), "Deployment", "metrics-api"))
    assert not [each for each in found["args"] if each.startswith("--store-max")]


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("agent: {tolerations: [{operater: Exists}]}", "did you mean operator?"),
        ("agent: {resources: {limit: {}}}", "did you mean limits?"),
        ("agent: {resources: {limits: {memory: lots}}}", "found limits.memory 'lots'"),
        ("agent: {extraVolumes: [{name: a, hostPath: {}}]}", "found hostPath without path"),
        ("agent: {extraEnv: [{value: a}]}", "found no name"),
        ("agent: {securityContext: {runAsUser: root}}", "expected a whole number"),
        ("agent: {updateStrategy: {rollingUpdate: 5}}", "expected a mapping"),
        ("agent: {podLabels: {app.kubernetes.io/name: x}}", "these select the pods"),
        ("agent: {customMetrics: 'DCGM_FI_DEV_GPU_TEMP, thing, a'}", "customMetrics:1"),
        ("agent: {networkPolicy: {from: [{podSelectr: {}}]}}", "did you mean podSelector?"),
        ("metricsApi: {serviceAccount: {create: false}}", "without name"),
        (
            "metricsApi: {source: streams, resources: {limits: {memory: 256Mi}}}",
            "expected at least 448Mi",
        ),
        ("prometheus: {kind: plain, url: 'http://me:secret@prom'}", "prometheus.auth.basicAuth"),
        ("prometheus: {auth: {headers: {A: b}}}", "auth with kind own"),
        (
            "prometheus: {kind: plain, url: http://p, auth: {tlsConfig: {keySecret: {name: a, key: b}}}}",
            "one of cert and keySecret",
        ),
    ],
)
def test_what_kubernetes_would_refuse_or_drop_is_refused_with_its_line(
    field: str, message: str
) -> None:
    text = f"spec:\n  scale: []\n  {field}\n"
    found = problem(text)
    assert message in found
    # A fault between two fields has the line of what holds both.
    assert found.startswith(
        ("values.yaml:3: spec.", "values.yaml:2: spec: ", "values.yaml:1: spec: ")
    )
    assert "secret@" not in found


def test_credentials_are_files_of_one_folder() -> None:
    auth = {
        "basicAuth": {"username": "12345", "password": KEY},
        "headers": {"X-Scope-OrgID": "team"},
        "tlsConfig": {"ca": {"configMap": {"name": "corp", "key": "ca.pem"}}},
    }
    found = objects(prometheus={**URL, "auth": auth})
    api = one(found, "Deployment", "metrics-api")
    given = [each for each in container(api)["args"] if each.startswith("--prometheus-")]
    assert given == [
        "--prometheus-url=https://prom.example.com",
        "--prometheus-username=12345",
        "--prometheus-password-file=/etc/gpuscale/prometheus/password",
        "--prometheus-header=X-Scope-OrgID=team",
        "--prometheus-ca-file=/etc/gpuscale/prometheus/ca.crt",
    ]
    (volume,) = [each for each in pod(api)["volumes"] if each["name"] == "prometheus-auth"]
    assert volume["projected"]["sources"] == [
        {"secret": {"name": "prom", "items": [{"key": "password", "path": "password"}]}},
        {"configMap": {"name": "corp", "items": [{"key": "ca.pem", "path": "ca.crt"}]}},
    ]
