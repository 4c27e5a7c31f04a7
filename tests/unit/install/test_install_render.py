# mypy: disable-error-code="arg-type"
"""What is rendered: rights, order, arguments that the programs take, rules that load."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml
from install_values import container, one, pod, rendered, scale, values
from pydantic import ValidationError

from gpuscale.agent.exporter.settings import read_settings as exporter_settings
from gpuscale.base.documents.documents import load_documents
from gpuscale.base.objects.manifests import load_manifests
from gpuscale.cli.servers.agent import plain_arguments as exporter_arguments
from gpuscale.ops.install.rendering import KIND_ORDER, RenderInputs, manifest, render
from gpuscale.series.promql.parse import parse_query
from gpuscale.server.metricsapi.settings import read_settings as metrics_api_settings
from gpuscale.server.rules.config import load_rules
from gpuscale.signals import GPU_SIGNALS

PLAIN = {"kind": "plain", "url": "http://prometheus.monitoring:9090"}
OPERATOR = {"kind": "operator", "url": "http://p.monitoring:9090", "release": "kps"}
ALL_OFF = {
    "scale": [],
    "agent": {"enabled": False},
    "metricsApi": {"enabled": False},
    "prometheus": PLAIN,
    "recordingRules": False,
    "alerts": {"enabled": False},
    "dashboards": {"enabled": False},
    "networkPolicies": False,
}


def data_of(objects, kind, ending, file):
    (document,) = load_documents(one(objects, kind, ending)["data"][file], file)
    return document.data


def arguments(workload):
    flags = container(workload)["args"][1:]
    pairs = (flag.removeprefix("--").split("=", 1) for flag in flags)
    return {name: (rest[0] if rest else "true") for name, *rest in pairs}


def test_objects_come_in_an_order_that_can_be_applied() -> None:
    kinds = [each["kind"] for each in rendered(values(samples={"bert": True}))]
    assert kinds[0] == "Namespace"
    assert kinds == sorted(kinds, key=KIND_ORDER.index)
    assert kinds.index("Deployment") < kinds.index("APIService") < len(kinds) - 1
    assert kinds[-1] == "HorizontalPodAutoscaler"


def test_every_object_says_which_installation_made_it() -> None:
    for each in rendered(values(samples={"bert": True, "mnistJobs": 2})):
        assert each["metadata"]["labels"]["gpuscale.dev/install"] == "gpuscale"


def test_every_part_has_a_switch() -> None:
    assert [each["kind"] for each in rendered(values(**ALL_OFF))] == ["Namespace"]


def test_the_manifest_is_read_back_as_it_was() -> None:
    objects = rendered(values())
    assert [each.data for each in load_documents(manifest(objects), "out.yaml")] == list(objects)


def test_rendering_twice_gives_the_same() -> None:
    found = values()
    assert render(found, RenderInputs()) == render(found, RenderInputs())


def test_agents_that_attribute_processes_may_read_pods_and_reach_the_api_server() -> None:
    objects = rendered(values(scale=[], agent={"attribution": "processes"}, networkPolicies=True))
    role = one(objects, "ClusterRole", "node-agent-pods")
    assert [(each["resources"], each["verbs"]) for each in role["rules"]] == [
        (["pods", "nodes"], ["get", "list", "watch"]),
        (["resourceslices"], ["get", "list", "watch"]),
    ]
    bound = one(objects, "ClusterRoleBinding", "node-agent-pods")
    account = pod(one(objects, "DaemonSet"))["serviceAccountName"]
    assert [each["name"] for each in bound["subjects"]] == [account]
    (egress,) = one(objects, "NetworkPolicy", "node-agent")["spec"]["egress"]
    assert [each["port"] for each in egress["ports"]] == [443, 6443, 8443]


def test_other_agents_may_not() -> None:
    objects = rendered(values(scale=[], networkPolicies=True))
    named = [each["metadata"]["name"] for each in objects if each["kind"] == "ClusterRole"]
    assert not any("node-agent" in name for name in named)
    assert "egress" not in one(objects, "NetworkPolicy", "node-agent")["spec"]


READY = "startup-taint.cluster-autoscaler.kubernetes.io/gpuscale"


@pytest.mark.parametrize("attribution", ["none", "allocations", "processes"])
def test_agents_that_take_a_taint_off_may_change_nodes_by_a_policy_alone(attribution: str) -> None:
    agent = {"attribution": attribution, "readyTaint": READY}
    objects = rendered(values(scale=[], agent=agent, networkPolicies=True))
    daemon_set = one(objects, "DaemonSet")
    assert f"--ready-taint={READY}" in container(daemon_set)["args"]
    assert pod(daemon_set)["automountServiceAccountToken"] is True
    assert pod(daemon_set)["tolerations"] == [{"operator": "Exists"}]
    (egress,) = one(objects, "NetworkPolicy", "node-agent")["spec"]["egress"]
    assert [each["port"] for each in egress["ports"]] == [443, 6443, 8443]
    role = one(objects, "ClusterRole", "node-agent-taint")
    assert [(each["resources"], each["verbs"]) for each in role["rules"]] == [
        (["nodes"], ["get", "patch"]),
        (["resourceslices"], ["list"]),
    ]
    bound = one(objects, "ClusterRoleBinding", "node-agent-taint")
    (account,) = bound["subjects"]
    assert account["name"] == pod(daemon_set)["serviceAccountName"]
    policy = one(objects, "ValidatingAdmissionPolicy", "node-agent-taint")
    user = f"system:serviceaccount:{account['namespace']}:{account['name']}"
    assert f'"{user}"' in policy["spec"]["matchConditions"][0]["expression"]
    assert policy["spec"]["failurePolicy"] == "Fail"
    binding = one(objects, "ValidatingAdmissionPolicyBinding", "node-agent-taint")
    assert binding["spec"] == {
        "policyName": policy["metadata"]["name"],
        "validationActions": ["Deny"],
    }
    kinds = [each["kind"] for each in objects]
    assert kinds.index("ValidatingAdmissionPolicyBinding") < kinds.index("ClusterRole")


def test_other_agents_may_change_no_node() -> None:
    objects = rendered(values())
    assert not any(each["kind"].startswith("ValidatingAdmission") for each in objects)
    assert "--ready-taint" not in str(objects)


@pytest.mark.parametrize("part", ["agent", "devicePlugin"])
def test_what_the_taint_waits_for_has_to_tolerate_it(part: str) -> None:
    given = {"agent": {"readyTaint": READY}, "devicePlugin": {"enabled": True}}
    given[part]["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    with pytest.raises(ValueError, match=f"found {part}.tolerations without agent.readyTaint"):
        values(**given)
    given[part]["tolerations"].append({"key": READY, "operator": "Exists"})
    values(**given)


@pytest.mark.parametrize("key", ["nvidia.com/gpu", "karpenter.sh/unregistered", 'a/b"-not-ready'])
def test_a_taint_that_stays_is_not_to_be_taken_off(key: str) -> None:
    with pytest.raises(ValueError, match="readyTaint"):
        values(agent={"readyTaint": key})


# The least that each kind of attribution takes: nothing; the user that the kubelet's socket belongs to; that
# and the host's processes, with the API server's pods.
@pytest.mark.parametrize(
    ("attribution", "user", "host_pid", "folders"),
    [
        ("none", 65532, None, []),
        ("allocations", 0, None, ["pod-resources"]),
        ("processes", 0, True, ["pod-resources"]),
    ],
)
def test_the_agent_has_the_rights_that_its_attribution_takes(
    attribution: str, user: int, host_pid: bool | None, folders
) -> None:
    agent = {"attribution": attribution}
    found = one(rendered(values(scale=[], agent=agent)), "DaemonSet")
    context = container(found)["securityContext"]
    assert context["runAsUser"] == user
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert (context["allowPrivilegeEscalation"], context["readOnlyRootFilesystem"]) == (False, True)
    assert "privileged" not in context
    assert pod(found).get("hostPID") == host_pid
    assert [each["name"] for each in pod(found).get("volumes", [])] == folders
    asks = attribution == "processes"
    assert pod(found)["automountServiceAccountToken"] is asks
    assert ("--kubernetes-enable-pod-uid" in container(found)["args"]) is asks


def test_only_a_node_without_nvidias_runtime_takes_a_privileged_agent() -> None:
    found = one(rendered(values(provider="gke", agent={"deviceAccess": "host"})), "DaemonSet")
    assert container(found)["securityContext"]["privileged"] is True
    names = [each["name"] for each in container(found)["env"]]
    assert names == ["NODE_NAME", "LD_LIBRARY_PATH"]


def test_servers_are_nobody_and_can_write_nowhere() -> None:
    for found in rendered(values()):
        if found["kind"] == "Deployment":
            context = container(found)["securityContext"]
            assert context["runAsNonRoot"] is True
            assert context["readOnlyRootFilesystem"] is True
            assert context["capabilities"] == {"drop": ["ALL"]}


def test_the_namespace_allows_node_folders_only_where_a_part_needs_one() -> None:
    level = "pod-security.kubernetes.io/enforce"
    on = one(rendered(values()), "Namespace")
    off = one(rendered(values(agent={"enabled": False}, prometheus=PLAIN)), "Namespace")
    assert (on["metadata"]["labels"][level], off["metadata"]["labels"][level]) == (
        "privileged",
        "restricted",
    )


@pytest.mark.parametrize("style", ["dcgm", "ack", "both"])
def test_the_exporter_takes_the_agents_arguments(style: str) -> None:
    agent = {"style": style, "attribution": "processes", "collectInterval": "500ms"}
    found = one(rendered(values(scale=[], agent=agent)), "DaemonSet")
    plain = exporter_arguments(container(found)["args"][1:])
    names, texts = plain[::2], plain[1::2]
    given = {name.removeprefix("--"): [text] for name, text in zip(names, texts, strict=True)}
    settings = exporter_settings(given, {"NODE_NAME": "n1"}, "host")
    assert settings.interval_ms == 500
    assert settings.attribution is not None
    assert (settings.address, settings.gpu.kind) == (("", 9400), "nvml")
    assert settings.styles == ({"dcgm", "ack"} if style == "both" else {style})


def test_the_metrics_api_takes_its_arguments(tmp_path: Path) -> None:
    objects = rendered(values())
    given = arguments(one(objects, "Deployment", "metrics-api"))
    settings = metrics_api_settings({name: [text] for name, text in given.items()})
    assert settings.source.url == "http://gpuscale-prometheus.gpuscale.svc:9090"
    service = one(objects, "Service", "gpuscale-prometheus")
    assert service["metadata"]["namespace"] == "gpuscale"
    assert service["spec"]["ports"][0]["port"] == 9090


STREAMS = {"source": "streams"}
NOBODY_ASKS = {"alerts": {"enabled": False}, "dashboards": {"enabled": False}}


def test_streams_are_those_behind_the_agents_service() -> None:
    objects = rendered(values(metricsApi=STREAMS))
    agents = one(objects, "Service", "node-agent")
    given = arguments(one(objects, "Deployment", "metrics-api"))
    assert "prometheus-url" not in given
    given["config"] = str(Path(__file__))
    given["remote-write-config"] = str(Path(__file__).parent)
    plain = {name: [text] for name, text in given.items() if not name.startswith("tls-")}
    feeds = metrics_api_settings(plain).feeds
    place = agents["metadata"]
    assert (feeds.agents.namespace, feeds.agents.service) == (place["namespace"], place["name"])
    assert feeds.scrapes_pods is False


def test_streams_need_no_right_beyond_the_agents_namespace_and_no_port_but_theirs() -> None:
    def egress(**api):
        policy = one(rendered(values(metricsApi=api)), "NetworkPolicy", "metrics-api")
        return {each["port"] for each in policy["spec"]["egress"][0]["ports"]}

    found = one(rendered(values(metricsApi=STREAMS)), "Role", "metrics-api-agents")
    assert found["rules"] == [
        {
            "apiGroups": ["discovery.k8s.io"],
            "resources": ["endpointslices"],
            "verbs": ["list", "watch"],
        }
    ]
    assert found["metadata"]["namespace"] == "gpuscale"
    streams = egress(**STREAMS, remoteWritePort=8428)
    assert streams - egress() == {9400, 8428}
    assert egress() - streams == {9090}


def test_samples_of_streams_are_saved_and_may_be_sent_on() -> None:
    def found(**api):
        objects = rendered(values(metricsApi=api))
        deployment = one(objects, "Deployment", "metrics-api")
        pod = deployment["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        volumes = {each["name"]: each for each in pod["volumes"]}
        mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
        ports = one(objects, "NetworkPolicy", "metrics-api")["spec"]["egress"][0]["ports"]
        numbers = {each["port"] for each in ports}
        return arguments(deployment), volumes, mounts, numbers, container.get("env")

    given, volumes, mounts, ports, env = found(
        **STREAMS, storeSize="2Gi", remoteWriteSecret="mine", remoteWritePort=8428
    )
    assert given["store-directory"] == mounts["samples"]
    assert given["store-directory-size-limit"] == "2Gi"
    # Beyond the limit a pod is evicted; the store takes 2 GiB, and file systems take whole blocks.
    assert volumes["samples"]["emptyDir"] == {"sizeLimit": "4Gi"}
    assert given["remote-write-config"] == mounts["remote-write"]
    assert (volumes["remote-write"]["secret"]["secretName"], 8428 in ports) == ("mine", True)
    # Kubernetes starts the pod although nobody has made the Secret.
    assert volumes["remote-write"]["secret"]["optional"] is True
    # Two replicas send the same series; Kubernetes fills in the pod's name.
    assert given["remote-write-label"] == "replica=$(POD_NAME)"
    assert [each["name"] for each in env] == ["POD_NAME"]

    given, volumes, _, ports, env = found()
    assert not {"store-directory", "remote-write-config", "remote-write-label"} & given.keys()
    assert not {"samples", "remote-write"} & volumes.keys()
    assert env is None


def test_replicas_with_streams_share_the_agents() -> None:
    objects = rendered(values(metricsApi={**STREAMS, "replicas": 3}))
    deployment = one(objects, "Deployment", "metrics-api")
    given = arguments(deployment)
    service = one(objects, "Service", "metrics-api")["metadata"]
    assert given["peers-service"] == f"{service['namespace']}/{service['name']}"
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert given["peers-ca-file"] == f"{mounts['tls']}/ca.crt"
    # Kubernetes puts the token there, as the pod asks for it.
    assert given["peers-token-file"] == "/var/run/secrets/kubernetes.io/serviceaccount/token"
    assert pod["automountServiceAccountToken"] is True
    # They may read each other, and who they are; nothing else is new.
    right = one(objects, "ClusterRole", "metrics-api-peers")
    assert right["rules"] == [{"nonResourceURLs": ["/peers/stream"], "verbs": ["get"]}]
    bound = one(objects, "ClusterRoleBinding", "metrics-api-peers")
    assert bound["roleRef"]["name"] == right["metadata"]["name"]
    assert [each["name"] for each in bound["subjects"]] == [pod["serviceAccountName"]]
    listing = one(objects, "Role", "metrics-api-agents")
    assert listing["metadata"]["namespace"] == service["namespace"]
    policy = one(objects, "NetworkPolicy", "metrics-api")["spec"]
    (port,) = [each["containerPort"] for each in container["ports"]]
    for way in ("ingress", "egress"):
        assert {"port": port, "protocol": "TCP"} in policy[way][0]["ports"]
    # What it is off with.
    for api in ({**STREAMS, "shareAgents": False}, {}):
        objects = rendered(values(metricsApi=api))
        assert not any(
            each.startswith("peers") for each in arguments(one(objects, "Deployment", "api"))
        )
        assert not any("peers" in each["metadata"]["name"] for each in objects)


def test_alerts_of_rules_go_to_alertmanagers() -> None:
    text = "groups:\n- {name: g, rules: [{alert: A, expr: sum(b)}]}\n"
    api = {
        **STREAMS,
        "prometheusRules": text,
        "alertmanagers": ["https://am-0.m:9093", "https://am-1.m:9093"],
        "alertmanagerCaSecret": "am-ca",
        "alertmanagerTokenSecret": "am-token",
    }
    objects = rendered(values(metricsApi=api))
    deployment = one(objects, "Deployment", "metrics-api")
    given = arguments(deployment)
    pod = deployment["spec"]["template"]["spec"]
    secrets = {
        each["name"]: each["secret"]["secretName"] for each in pod["volumes"] if "secret" in each
    }
    mounts = {
        secrets[each["name"]]: each["mountPath"]
        for each in pod["containers"][0]["volumeMounts"]
        if each["name"] in secrets
    }
    assert given["alertmanager"] == "https://am-0.m:9093,https://am-1.m:9093"
    assert given["alertmanager-ca-file"] == f"{mounts['am-ca']}/ca.crt"
    assert given["alertmanager-token-file"] == f"{mounts['am-token']}/token"
    read = metrics_api_settings(
        {
            "source": ["streams"],
            "prometheus-rules": [str(Path(__file__))],
            **{name: [text] for name, text in given.items() if name.startswith("alertm")},
        }
    )
    assert read.ruler.alertmanagers.urls == ("https://am-0.m:9093", "https://am-1.m:9093")

    def ports(**more):
        policy = one(rendered(values(metricsApi=more)), "NetworkPolicy", "metrics-api")
        return {each["port"] for each in policy["spec"]["egress"][0]["ports"]}

    assert ports(**api) - ports(**STREAMS) == {9093}
    plain = {**STREAMS, "prometheusRules": text, "alertmanagers": ["http://am"]}
    assert ports(**plain) - ports(**STREAMS) == {80}


@pytest.mark.parametrize(
    ("api", "fault"),
    [
        ({"alertmanagers": ["http://a:1"]}, "alertmanagers without metricsApi.prometheusRules"),
        ({"prometheusRules": "groups: []", "alertmanagers": ["a:1"]}, "alertmanagers"),
        (
            {"prometheusRules": "groups: []", "alertmanagers": ["http://a:1", "http://b:2"]},
            "found metricsApi.alertmanagers with ports 1, 2, expected one port",
        ),
        ({"alertmanagerCaSecret": "a"}, "expected their addresses"),
        (
            {
                "prometheusRules": "groups: []",
                "alertmanagers": ["http://a:1"],
                "alertmanagerTokenSecret": "t",
            },
            "expected https",
        ),
    ],
)
def test_alertmanagers_that_can_not_be_sent_to(api, fault: str) -> None:
    with pytest.raises(ValidationError, match=fault):
        values(metricsApi={**STREAMS, **api})


# Annotations may name any port of any pod; the right to list pods is there for `*` anyway.
def test_annotated_pods_are_scraped_only_where_asked_for() -> None:
    def found(**more):
        objects = rendered(values(metricsApi={**STREAMS, **more}))
        roles = [
            (each["metadata"]["name"], each["rules"])
            for each in objects
            if each["kind"].endswith("Role")
        ]
        policies = [each for each in objects if each["kind"] == "NetworkPolicy"]
        names = {each["metadata"]["name"] for each in policies}
        return arguments(one(objects, "Deployment", "metrics-api")), roles, names, policies

    off, roles_off, names_off, _ = found()
    on, roles_on, names_on, policies = found(scrapePods=True)
    assert roles_on == roles_off
    assert set(on.items()) - set(off.items()) == {
        ("scrape-annotated-pods", "true"),
        ("preset", "on"),
    }
    assert names_on - names_off == {"gpuscale-scraped-pods"}
    policy = one(policies, "NetworkPolicy", "scraped-pods")["spec"]
    assert policy["egress"] == [{"to": [{"namespaceSelector": {}}], "ports": [{"protocol": "TCP"}]}]
    api = one(policies, "NetworkPolicy", "metrics-api")["spec"]
    assert policy["podSelector"] == api["podSelector"]
    assert policy["policyTypes"] == ["Egress"]


# With streams nobody but alerts and dashboards asks a Prometheus; without, the metrics API does.
@pytest.mark.parametrize(
    ("source", "more", "has_one"),
    [
        ("streams", NOBODY_ASKS, False),
        ("streams", {**NOBODY_ASKS, "alerts": {"enabled": True}}, True),
        ("streams", {**NOBODY_ASKS, "dashboards": {"enabled": True}}, True),
        ("prometheus", NOBODY_ASKS, True),
    ],
)
def test_a_prometheus_is_there_for_those_who_ask_it(source: str, more, has_one: bool) -> None:
    objects = rendered(values(metricsApi={"source": source}, **more))
    parts = {each["metadata"]["labels"]["app.kubernetes.io/component"] for each in objects}
    assert ({"prometheus", "monitoring"} <= parts) == has_one
    assert ({"prometheus", "monitoring"} & parts != set()) == has_one


# Series of streams have the agents' own labels, whatever a Prometheus makes of them.
def test_rules_for_streams_serve_every_signal_by_the_agents_labels() -> None:
    def files(**spec):
        objects = rendered(values(metricsApi=STREAMS, prometheus={"honorLabels": False}, **spec))
        return one(objects, "ConfigMap", "metrics-api")["data"]

    for recording, means in ((True, ["deployment", "statefulset", "service"]), (False, [])):
        texts = files(recordingRules=recording)
        config = load_rules(texts["rules.yaml"], "rules.yaml")
        assert config.warnings == ()
        assert len(config.rules) == len(GPU_SIGNALS) + len(means)
        assert ("recording.yaml" in texts) is recording
        assert "exported_" not in "".join(texts.values())


def test_streams_record_the_means_and_the_service_may_have_another_name() -> None:
    spec = {"metricsApi": STREAMS, "agent": {"serviceName": "dcgm-exporter"}}
    objects = rendered(values(**spec))
    found = arguments(one(objects, "Deployment", "api"))
    assert found["prometheus-rules"] == "/etc/gpuscale/rules/recording.yaml"
    assert found["agent-service"] == "gpuscale/dcgm-exporter"
    assert one(objects, "Service", "dcgm-exporter")["spec"]["ports"][0]["name"] == "metrics"
    off = arguments(one(rendered(values(**spec, recordingRules=False)), "Deployment", "api"))
    assert "prometheus-rules" not in off


def test_the_preset_is_served_beside_the_rules_where_asked_for() -> None:
    def preset(**api):
        return arguments(one(rendered(values(metricsApi=api)), "Deployment", "api")).get("preset")

    assert (preset(), preset(preset=True), preset(preset=True, **STREAMS)) == (None, "on", "on")


def test_teams_rules_are_read_only_where_asked_for() -> None:
    def config_maps(**api):
        role = one(rendered(values(metricsApi=api)), "ClusterRole", "metrics-api-objects")
        return [each["verbs"] for each in role["rules"] if each["resources"] == ["configmaps"]]

    label = "gpuscale.dev/rules in (a, b)"
    assert (config_maps(), config_maps(rulesConfigMaps=label)) == ([], [["list", "watch"]])
    found = one(rendered(values(metricsApi={"rulesConfigMaps": label})), "Deployment", "api")
    assert arguments(found)["rules-configmaps"] == label


def test_prometheus_rules_and_exporters_go_to_the_metrics_api_of_streams() -> None:
    text = "groups:\n- {name: g, rules: [{record: a, expr: sum(b)}]}\n"
    api = {**STREAMS, "scrapePods": True, "prometheusRules": text, "exporterPods": "gpus,a/b=c"}
    objects = rendered(values(metricsApi=api))
    files = one(objects, "ConfigMap", "metrics-api")["data"]
    assert files["prometheus-rules.yaml"] == text
    container = one(objects, "Deployment", "api")
    found = arguments(container)
    assert found["exporter-pods"] == "gpus,a/b=c"
    (mount,) = [
        each["mountPath"]
        for each in container["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]
        if each["name"] == "rules"
    ]
    assert found["prometheus-rules"] == f"{mount}/prometheus-rules.yaml"
    without = values(metricsApi=STREAMS, recordingRules=False)
    without = arguments(one(rendered(without), "Deployment", "api"))
    assert not {"prometheus-rules", "exporter-pods"} & without.keys()


@pytest.mark.parametrize("honor_labels", [True, False])
def test_the_rule_file_serves_every_signal(honor_labels: bool) -> None:
    prometheus = {"honorLabels": honor_labels}
    objects = rendered(values(prometheus=prometheus))
    text = one(objects, "ConfigMap", "metrics-api")["data"]["rules.yaml"]
    config = load_rules(text, "rules.yaml")
    assert config.warnings == ()
    for signal in GPU_SIGNALS.values():
        names = {rule.api_name(signal.series) for rule in config.rules}
        assert signal.metric in names


def test_a_rule_file_of_the_users_own_is_used_as_it_is() -> None:
    found = one(rendered(values(metricsApi={"rules": "rules: []\n"})), "ConfigMap", "metrics-api")
    assert found["data"] == {"rules.yaml": "rules: []\n"}


@pytest.mark.prometheus
@pytest.mark.parametrize("honor_labels", [True, False])
def test_prometheus_takes_its_configuration_and_rules(tmp_path: Path, honor_labels: bool) -> None:
    objects = rendered(values(prometheus={"honorLabels": honor_labels}))
    config = data_of(objects, "ConfigMap", "prometheus", "prometheus.yml")
    config["rule_files"] = ["*.yaml"]
    for job in config["scrape_configs"]:
        del job["kubernetes_sd_configs"]  # Debian's promtool is built without it
    _, api = config["scrape_configs"]
    api["authorization"]["credentials_file"] = api["tls_config"]["ca_file"] = "there"
    (tmp_path / "there").touch()
    (tmp_path / "prometheus.yml").write_text(json.dumps(config))
    for name, rules in one(objects, "ConfigMap", "monitoring")["data"].items():
        (tmp_path / name).write_text(rules)
    command = ["promtool", "check", "config", tmp_path / "prometheus.yml"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "recording.yaml\n  SUCCESS: 1 rules found" in result.stdout
    assert "alerts.yaml\n  SUCCESS: 27 rules found" in result.stdout


PODS = {  # two pods of one Deployment, one of a StatefulSet, one GPU that nobody has
    "vision-api-7b486f6bf-x2x4z": 80,
    "vision-api-7b486f6bf-m9kqd": 40,
    "llm-0": 30,
    "": 99,
}


@pytest.mark.prometheus
@pytest.mark.parametrize("honor_labels", [True, False])
def test_means_are_recorded_by_workload_and_by_service(tmp_path: Path, honor_labels: bool) -> None:
    objects = rendered(values(prometheus={"honorLabels": honor_labels}))
    rules = one(objects, "ConfigMap", "monitoring")["data"]["recording.yaml"]
    (tmp_path / "recording.yaml").write_text(rules)
    prefix = "" if honor_labels else "exported_"
    agents = "" if honor_labels else 'namespace="gpuscale",pod="agent-1",'
    series = [
        {
            "series": f'DCGM_FI_DEV_GPU_UTIL{{{agents}service="agents",gpu="{index}",'
            f'{prefix}namespace="ml",{prefix}pod="{name}"}}',
            "values": f"{value}x4",
        }
        for index, (name, value) in enumerate(PODS.items())
    ]
    home = "ml" if honor_labels else "gpuscale"
    wanted = [
        # (80 + 40) / 2 and 30 alone; the GPU that nobody has counts nowhere: (80 + 40 + 30) / 3.
        {"labels": _mean(namespace="ml", deployment="vision-api"), "value": 60},
        {"labels": _mean(namespace="ml", statefulset="llm"), "value": 30},
        {"labels": _mean(namespace=home, service="agents"), "value": 50},
    ]
    test = {
        "rule_files": ["recording.yaml"],
        "evaluation_interval": "15s",
        "tests": [
            {
                "interval": "15s",
                "input_series": series,
                "promql_expr_test": [
                    {
                        "expr": "DCGM_FI_DEV_GPU_UTIL_AVG",
                        "eval_time": "30s",
                        "exp_samples": wanted,
                    }
                ],
            }
        ],
    }
    (tmp_path / "test.yaml").write_text(json.dumps(test))
    command = ["promtool", "test", "rules", tmp_path / "test.yaml"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def _mean(**labels):
    inside = ",".join(f'{k}="{v}"' for k, v in labels.items())
    return f"DCGM_FI_DEV_GPU_UTIL_AVG{{{inside}}}"


def test_azures_page_is_scraped_where_that_is_asked_for() -> None:
    asked = {"agent": {"azureMetrics": True}}
    monitor = one(rendered(values(prometheus=OPERATOR, **asked)), "ServiceMonitor", "node-agent")
    first, azure = monitor["spec"]["endpoints"]
    assert "path" not in first
    assert (azure["path"], azure["port"]) == ("/metrics/azure", first["port"])
    # Prometheus names no path in the labels of a target: the `up` of both would be one series.
    path = {"targetLabel": "metrics_path", "replacement": "/metrics/azure"}
    assert azure["relabelings"] == [*first["relabelings"], path]

    def jobs(**spec):
        text = one(rendered(values(**spec)), "ConfigMap", "prometheus")["data"]["prometheus.yml"]
        return {each["job_name"]: each for each in yaml.safe_load(text)["scrape_configs"]}

    assert "gpuscale-node-agent-azure" not in jobs()
    found = jobs(**asked)
    azure = found["gpuscale-node-agent-azure"]
    assert azure.pop("metrics_path") == "/metrics/azure"
    names = {"job_name": "gpuscale-node-agent"}
    assert {**azure, **names} == found["gpuscale-node-agent"]

    streams = rendered(values(metricsApi=STREAMS, **asked))
    given = arguments(one(streams, "Deployment", "metrics-api"))
    assert given["agent-pages"] == "/metrics/azure"


def test_an_operators_monitor_keeps_the_workloads_labels() -> None:
    found = one(rendered(values(prometheus=OPERATOR)), "ServiceMonitor", "node-agent")
    assert found["metadata"]["labels"]["release"] == "kps"
    (endpoint,) = found["spec"]["endpoints"]
    assert endpoint["honorLabels"] is True
    # A GPU that nobody has must not get the agent's own pod.
    _, dropped = endpoint["relabelings"]
    assert dropped == {"action": "labeldrop", "regex": "pod|container|namespace|endpoint"}


def test_the_series_of_a_node_go_on_when_its_agent_is_another_pod() -> None:
    """Series of the old and the new pod side by side would count twice in sums."""
    node = "__meta_kubernetes_pod_node_name"
    monitor = one(rendered(values(prometheus=OPERATOR)), "ServiceMonitor", "node-agent")
    (endpoint,) = monitor["spec"]["endpoints"]
    assert {"sourceLabels": [node], "targetLabel": "instance"} in endpoint["relabelings"]
    agents, api = data_of(rendered(values()), "ConfigMap", "prometheus", "prometheus.yml")[
        "scrape_configs"
    ]
    instance = {"source_labels": [node], "target_label": "instance"}
    assert instance in agents["relabel_configs"]
    # Its replicas may be on one node, and are no series of each other.
    assert instance not in api["relabel_configs"]


@pytest.mark.parametrize(("api", "seconds"), [({}, 30), ({"source": "streams"}, 5)])
def test_agents_are_replaced_no_faster_than_their_readings_are_served(api, seconds: int) -> None:
    agents = one(rendered(values(metricsApi=api)), "DaemonSet", "node-agent")
    assert agents["spec"]["minReadySeconds"] == seconds


def test_a_plain_prometheus_finds_the_agents_by_annotation_and_gets_its_job_ready_made() -> None:
    objects = rendered(values(prometheus=PLAIN))
    annotations = one(objects, "Service", "node-agent")["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == "9400"
    agents, _ = data_of(objects, "ConfigMap", "monitoring", "scrape-config.yaml")
    assert agents["honor_labels"] is True


def test_whoever_scrapes_the_metrics_api_says_who_it_is_and_knows_whom_it_asks() -> None:
    """The token must not go to a server that merely listens there, where the CA can be had."""
    host = "gpuscale-metrics-api.gpuscale.svc"
    monitor = one(rendered(values(prometheus=OPERATOR)), "ServiceMonitor", "metrics-api")
    (endpoint,) = monitor["spec"]["endpoints"]
    ca = {"secret": {"name": "gpuscale-metrics-api-serving", "key": "ca.crt"}}
    assert endpoint["tlsConfig"] == {"ca": ca, "serverName": host}
    objects = rendered(values())
    job = data_of(objects, "ConfigMap", "prometheus", "prometheus.yml")["scrape_configs"][1]
    deployment = one(objects, "Deployment", "prometheus")
    (mount,) = [
        each["mountPath"]
        for each in container(deployment)["volumeMounts"]
        if each["name"] == "metrics-api-ca"
    ]
    assert job["tls_config"] == {"ca_file": f"{mount}/ca.crt", "server_name": host}
    assert one(objects, "ClusterRole", "prometheus-metrics")["rules"] == [
        {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
    ]


def test_pods_renew_the_certificate_in_a_secret_that_is_installed_empty() -> None:
    """With data, every later run would put the first certificate back; with a caBundle, the first CA."""
    api = {
        "external": True,
        "rulesConfigMaps": "team=ml",
        "serviceAccount": {"name": "theirs", "create": False},
    }
    objects = rendered(values(metricsApi=api))
    secret = one(objects, "Secret", "metrics-api-serving")
    assert "data" not in secret
    served = [each for each in objects if each["kind"] == "APIService"]
    assert len(served) == 3
    assert all("caBundle" not in each["spec"] for each in served)
    names = [each["metadata"]["name"] for each in served]
    arguments = container(one(objects, "Deployment", "metrics-api"))["args"]
    assert "--tls-secret=gpuscale/gpuscale-metrics-api-serving" in arguments
    assert f"--tls-secret-apiservices={','.join(names)}" in arguments
    assert one(objects, "ClusterRole", "metrics-api-certificate")["rules"][0] == {
        "apiGroups": ["apiregistration.k8s.io"],
        "resources": ["apiservices"],
        "resourceNames": names,
        "verbs": ["get", "patch"],
    }
    for kind in ("RoleBinding", "ClusterRoleBinding"):
        (subject,) = one(objects, kind, "metrics-api-certificate")["subjects"]
        assert subject["name"] == "theirs"


@pytest.mark.parametrize("api", [{"enabled": False}, {"externalName": "laptop.example.com"}])
def test_a_metrics_api_without_pods_is_not_scraped_and_not_missed(api) -> None:
    objects = rendered(values(metricsApi=api))
    config = data_of(objects, "ConfigMap", "prometheus", "prometheus.yml")
    assert [each["job_name"] for each in config["scrape_configs"]] == ["gpuscale-node-agent"]
    groups = data_of(objects, "ConfigMap", "monitoring", "alerts.yaml")["groups"]
    alerts = {rule["alert"] for group in groups for rule in group["rules"]}
    assert "GpuMetricsApiDown" not in alerts
    assert "GpuMetricsApiUnavailable" in alerts


def test_dashboards_are_labelled_for_grafanas_sidecar_where_it_looks() -> None:
    dashboards = {"namespace": "monitoring", "label": "dash", "folder": "GPUs"}
    objects = rendered(values(dashboards=dashboards, prometheus=OPERATOR))
    found = [each for each in objects if "dash" in each["metadata"]["labels"]]
    names = ["gpus", "autoscaling", "cost", "servers"]
    assert [each["metadata"]["name"] for each in found] == [
        f"gpuscale-dashboard-{name}" for name in names
    ]
    for each, name in zip(found, names, strict=True):
        assert each["metadata"]["namespace"] == "monitoring"
        assert each["metadata"]["labels"]["dash"] == "1"
        assert each["metadata"]["annotations"] == {"grafana_folder": "GPUs"}
        assert list(each["data"]) == [f"gpuscale-{name}.json"]


HPA_VERSIONS = ["autoscaling/v2", "autoscaling/v2beta2", "autoscaling/v2beta1"]


def hpa(**changes):
    found = one(rendered(values(scale=[scale(**changes)])), "HorizontalPodAutoscaler")
    (read,) = load_manifests(json.dumps(found), "hpa.yaml")
    return read


@pytest.mark.parametrize("metric", ["pods", "object"])
def test_all_versions_of_the_hpa_say_the_same(metric: str) -> None:
    first, *others = [
        hpa(hpaVersion=version, metric=metric, target=62.5) for version in HPA_VERSIONS
    ]
    assert (first.min_replicas, first.max_replicas) == (1, 8)
    for other in others:
        assert other.metrics == first.metrics


@pytest.mark.parametrize("signal", GPU_SIGNALS)
def test_kedas_query_gives_one_element_and_its_metric_type_can_work(signal) -> None:
    agent = {"attribution": "processes", "style": "both"}
    target = GPU_SIGNALS[signal].target
    given = scale(autoscaler="keda", signal=signal, target=target)
    asked = values(scale=[given], agent=agent, keda={"trigger": "prometheus"})
    found = one(rendered(asked), "ScaledObject")
    (trigger,) = found["spec"]["triggers"]
    # KEDA's default, AverageValue, never asks for more than ceil(100 / 50) = 2 pods for a mean of 100 %.
    assert trigger["metricType"] == "Value"
    assert trigger["metadata"]["ignoreNullValues"] == "false"
    assert trigger["metadata"]["threshold"] == f"{target:g}"
    assert trigger["metadata"]["query"].startswith("avg(")
    parse_query(trigger["metadata"]["query"])


def test_cert_manager_makes_and_injects_the_certificate() -> None:
    objects = rendered(values(metricsApi={"certificates": "cert-manager"}))
    assert not [each for each in objects if each["kind"] == "Secret"]
    serving = one(objects, "Certificate", "tls")
    assert "gpuscale-metrics-api.gpuscale.svc" in serving["spec"]["dnsNames"]
    service = one(objects, "APIService", "v1beta2.custom.metrics.k8s.io")
    assert service["metadata"]["annotations"] == {
        "cert-manager.io/inject-ca-from": "gpuscale/gpuscale-metrics-api-tls"
    }
    issuers = [each["metadata"]["name"] for each in objects if each["kind"] == "Issuer"]
    assert issuers == ["gpuscale-self-signed", "gpuscale-metrics-api-ca"]


def test_external_metrics_are_left_to_others_unless_asked_for() -> None:
    def names(**api):
        objects = rendered(values(metricsApi=api))
        return [each["metadata"]["name"] for each in objects if each["kind"] == "APIService"]

    custom = ["v1beta1.custom.metrics.k8s.io", "v1beta2.custom.metrics.k8s.io"]
    assert names() == custom
    assert names(external=True, rulesConfigMaps="team=ml") == [
        *custom,
        "v1beta1.external.metrics.k8s.io",
    ]


def test_resource_metrics_are_left_to_metrics_server_unless_asked_for() -> None:
    def found(**api):
        objects = rendered(values(metricsApi=api, prometheus=PLAIN))
        names = {each["metadata"]["name"] for each in objects if each["kind"] == "APIService"}
        files = one(objects, "ConfigMap", "metrics-api")["data"]
        configs = [each for each in args_of(objects) if each.startswith("--config=")]
        return "v1beta1.metrics.k8s.io" in names, sorted(files), configs

    folder = "--config=/etc/gpuscale/rules"
    assert found() == (False, ["rules.yaml"], [f"{folder}/rules.yaml"])
    assert found(resource=True) == (
        True,
        ["resource-rules.yaml", "rules.yaml"],
        [f"{folder}/resource-rules.yaml", f"{folder}/rules.yaml"],
    )


def test_who_may_view_pods_may_see_what_they_use() -> None:
    def readers(**api):
        objects = rendered(values(metricsApi=api, prometheus=PLAIN))
        return [each for each in objects if each["metadata"]["name"].endswith("metrics-reader")]

    assert readers() == []
    (role,) = readers(resource=True)
    aggregated = "rbac.authorization.k8s.io/aggregate-to-"
    labels = role["metadata"]["labels"]
    found = [key.removeprefix(aggregated) for key in labels if key.startswith(aggregated)]
    assert sorted(found) == ["admin", "edit", "view"]
    assert role["rules"] == [
        {
            "apiGroups": ["metrics.k8s.io"],
            "resources": ["pods", "nodes"],
            "verbs": ["get", "list", "watch"],
        }
    ]


def args_of(objects):
    return container(one(objects, "Deployment", "metrics-api"))["args"]


# The operator's kubelet Service gives `node`; Prometheus' discovery of nodes sets `instance` to the name.
@pytest.mark.parametrize(("prometheus", "label"), [(OPERATOR, "node"), (PLAIN, "instance")])
def test_nodes_are_found_by_the_label_that_each_prometheus_gives(prometheus, label: str) -> None:
    objects = rendered(values(metricsApi={"resource": True}, prometheus=prometheus))
    text = one(objects, "ConfigMap", "metrics-api")["data"]["resource-rules.yaml"]
    config = load_rules(text, "resource-rules.yaml")
    assert config.warnings == ()
    assert config.resource_rules is not None
    (document,) = load_documents(text, "resource-rules.yaml")
    for name in ("cpu", "memory"):
        overrides = document.data["resourceRules"][name]["resources"]["overrides"]
        assert overrides[label] == {"resource": "node"}


def test_time_slicing_multiplies_and_refuses_requests_for_two() -> None:
    plugin = {"enabled": True, "replicas": 4}
    config = data_of(rendered(values(devicePlugin=plugin)), "ConfigMap", "plugin", "config.yaml")
    assert config["sharing"]["timeSlicing"] == {
        "renameByDefault": False,
        "failRequestsGreaterThanOne": True,
        "resources": [{"name": "nvidia.com/gpu", "replicas": 4}],
    }


@pytest.mark.parametrize(
    ("provider", "label"),
    [
        ("aks", "kubernetes.azure.com/accelerator"),
        ("eks", "k8s.amazonaws.com/accelerator"),
        ("eks", "node.kubernetes.io/instance-type"),
        ("ack", "aliyun.accelerator/nvidia_name"),
        ("gke", "cloud.google.com/gke-accelerator"),
        ("generic", "nvidia.com/gpu.present"),
        ("generic", "gpuscale.dev/gpu"),
    ],
)
def test_the_agent_finds_gpu_nodes_by_the_providers_labels(provider: str, label: str) -> None:
    found = pod(one(rendered(values(provider=provider)), "DaemonSet"))
    affinity = found["affinity"]["nodeAffinity"]
    terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert label in {term["matchExpressions"][0]["key"] for term in terms}
    assert found["tolerations"] == [{"operator": "Exists"}]


@pytest.mark.parametrize(
    ("changes", "groups"),
    [
        ({}, ["gpuscale-means", "gpuscale-gpus", "gpuscale-scaling"]),
        ({"recordingRules": False}, ["gpuscale-gpus", "gpuscale-scaling"]),
        ({"alerts": {"enabled": False}}, ["gpuscale-means"]),
    ],
)
def test_an_operator_gets_recording_rules_and_alerts_in_one_object(
    changes, groups: list[str]
) -> None:
    rule = one(rendered(values(prometheus=OPERATOR, **changes)), "PrometheusRule")
    assert [each["name"] for each in rule["spec"]["groups"]] == groups


def test_samples_tolerate_the_installations_taint() -> None:
    taint = {"key": "sku", "value": "gpu"}
    objects = rendered(values(taint=taint, samples={"mnistJobs": 20}))
    job = one(objects, "Job")
    assert job["spec"]["parallelism"] == job["spec"]["completions"] == 20
    assert pod(job)["tolerations"][0] == {
        "key": "sku",
        "operator": "Equal",
        "value": "gpu",
        "effect": "NoSchedule",
    }


def test_azures_page_takes_an_agent_that_knows_pods() -> None:
    with pytest.raises(ValidationError, match="expected one that ties GPUs to pods"):
        values(agent={"azureMetrics": True, "attribution": "none"})
