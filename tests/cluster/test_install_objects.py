"""Every combination of options, held against a real API server: no error, and no warning."""

import itertools
import subprocess
import sys
from pathlib import Path

import pytest

from gpuscale.ops.install.certificates import make_certificate
from gpuscale.ops.install.rendering import (
    RenderInputs,
    manifest,
    needs_certificate,
    pool_files,
    render,
)
from gpuscale.ops.install.values import Values
from gpuscale.signals import SIGNALS

sys.path.insert(0, str(Path(__file__).parent))
from upstream_kinds import upstream_kinds

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]

NOW_MS = 1_700_000_000_000
PROVIDERS = ("aks", "eks", "ack", "gke", "generic")
PROMETHEUS: dict[str, dict[str, object]] = {
    "own": {"kind": "own"},
    "operator": {"kind": "operator", "url": "http://p.monitoring:9090", "release": "kps"},
    "plain": {"kind": "plain", "url": "http://p.monitoring:9090", "honorLabels": False},
}
SCALES = {
    "pods": {"signal": "gpu-share", "target": 40},
    "object": {"metric": "object", "target": 60},
    "keda": {"autoscaler": "keda", "signal": "ack-memory-ratio", "target": 0.7},
    "stateful": {
        "workload": {"kind": "StatefulSet", "name": "llm"},
        "signal": "graphics-engine",
        "target": 0.6,
    },
}
AGENTS = {
    "default": {"attribution": "processes", "style": "both"},
    "host": {
        "attribution": "processes",
        "style": "both",
        "deviceAccess": "host",
        "runtimeClass": "nvidia",
    },
}
CERTIFICATES = {
    "generated": {},
    "cert-manager": {"certificates": "cert-manager"},
    "issuer": {"certificates": "cert-manager", "issuer": "corp"},
}
SOURCES = {
    "prometheus": {},
    "streams": {
        "source": "streams",
        "scrapePods": True,
        "rulesConfigMaps": "gpuscale.dev/rules=true",
    },
}
OTHERS = {
    "devicePlugin": {"enabled": True, "replicas": 4, "migStrategy": "mixed"},
    "samples": {"bert": True, "visionImage": "vision:1", "mnistJobs": 20},
    "image": {"pullSecret": "registry"},
}
RECORDED = ("object", "streams")
"""The pair that is refused: nobody records means of streams."""
COMBINATIONS = tuple(
    each
    for each in itertools.product(PROVIDERS, PROMETHEUS, SCALES, AGENTS, CERTIFICATES, SOURCES)
    if (each[2], each[5]) != RECORDED
)


@pytest.fixture(scope="module")
def kinds(plane):
    with upstream_kinds(plane, "prometheus-operator", "keda", "cert-manager"):
        yield


@pytest.fixture(scope="module")
def namespace(plane):
    plane.kubectl("create", "namespace", "gpuscale")
    yield
    plane.kubectl("delete", "namespace", "gpuscale")


def rendered(provider, prometheus, scale, agent, certificates, source):
    workload = {"workload": {"name": "vision-api"}, "maxReplicas": 8, **SCALES[scale]}
    api = {
        "external": scale != "keda",
        "rulesConfigMaps": None if scale == "keda" else "team=ml",
        "resource": source == "prometheus" and prometheus != "own",
        **CERTIFICATES[certificates],
        **SOURCES[source],
    }
    values = Values.model_validate(
        {
            "spec": {
                "provider": provider,
                "scale": [workload],
                "prometheus": PROMETHEUS[prometheus],
                "agent": AGENTS[agent],
                "metricsApi": api,
                **OTHERS,
            }
        }
    )
    certificate = make_certificate(values, NOW_MS) if needs_certificate(values) else None
    return render(values, RenderInputs(certificate))


def dry_run(plane, folder, name, text):
    """Return what kubectl says beside what would be done: errors and warnings."""
    path = folder / name
    path.write_text(text)
    command = ["kubectl", f"--kubeconfig={plane.admin}", "apply", "--server-side"]
    flags = ["--dry-run=server", "--validate=strict", f"--filename={path}"]
    done = subprocess.run([*command, *flags], capture_output=True, text=True, check=False)
    assert done.stdout or done.stderr
    return done.stderr


def test_there_are_as_many_combinations_as_options_make() -> None:
    assert len(COMBINATIONS) == 5 * 3 * (4 * 2 - 1) * 2 * 3


@pytest.mark.timeout(400)
def test_the_api_server_takes_every_combination(plane, kinds, namespace, tmp_path: Path) -> None:
    # Combinations share most of their objects: each different one is looked at once.
    texts = {manifest([body]) for each in COMBINATIONS for body in rendered(*each)}
    assert dry_run(plane, tmp_path, "all.yaml", "---\n".join(sorted(texts))) == ""


def test_the_api_server_takes_what_azure_asks_for(plane, kinds, namespace, tmp_path: Path) -> None:
    """AKS' monitors are those of the Prometheus Operator in another group."""
    who = "00000000-0000-0000-0000-0000000000aa"
    queue = {
        "resourceUri": "Microsoft.ServiceBus/namespaces/training",
        "tenantId": who,
        "subscriptionId": who,
        "resourceGroupName": "ml",
        "metricName": "ActiveMessages",
        "metricAggregationType": "Average",
        "target": 4,
    }
    metrics = [
        {"signal": "vllm-waiting", "target": 4},
        {"type": "AzureMonitor", "azureMonitor": queue},
    ]
    workload = {"name": "vision-api", "namespace": "gpuscale"}
    scale = {"workload": workload, "maxReplicas": 8, "autoscaler": "keda", "metrics": metrics}
    workspace = {"kind": "azure", "url": "https://w.example", "identity": who}
    spec = {"scale": [scale], "prometheus": workspace, "keda": {"trigger": "prometheus"}}
    text = manifest(render(Values.model_validate({"spec": spec})))
    assert text.count("azmonitoring.coreos.com/v1") == 2
    assert text.count("type: azure-monitor") == text.count("kind: TriggerAuthentication") == 1
    text = text.replace("azmonitoring.coreos.com/v1", "monitoring.coreos.com/v1")
    assert dry_run(plane, tmp_path, "azure.yaml", text) == ""


@pytest.mark.parametrize("scale", ["pods", "keda"])
def test_the_api_server_takes_every_signal(plane, kinds, namespace, tmp_path: Path, scale) -> None:
    scales = [
        {
            "workload": {"name": f"w{index}", "namespace": "gpuscale"},
            "signal": name,
            "target": signal.target,
            "maxReplicas": 9,
            "autoscaler": "keda" if scale == "keda" else "hpa",
            **({} if signal.kind == "pods" else {"of": "chat"}),
        }
        for index, (name, signal) in enumerate(SIGNALS.items())
        if not signal.of_processes
    ]
    spec = {
        "scale": scales,
        "prometheus": PROMETHEUS["operator"],
        "metricsApi": {"external": scale != "keda"},
    }
    bodies = render(Values.model_validate({"spec": spec}))
    assert "PodMonitor" in {each["kind"] for each in bodies}
    assert dry_run(plane, tmp_path, "signals.yaml", manifest(bodies)) == ""


# Names of ports, labels with a prefix, and a port without labels are fields of the policy's own.
def test_the_api_server_takes_what_is_collected_and_combined(
    plane, kinds, namespace, tmp_path: Path
) -> None:
    parts = [
        {"signal": "vllm-waiting", "threshold": 5},
        {"signal": "gpu-utilization", "threshold": 90},
    ]
    metrics = [{"combined": "vllm_fullness", "parts": parts}]
    scales = [
        {
            "workload": {"name": f"of-{autoscaler}", "namespace": "gpuscale"},
            "metrics": metrics,
            "maxReplicas": 9,
            "autoscaler": autoscaler,
        }
        for autoscaler in ("hpa", "keda")
    ]
    api = {
        "source": "streams",
        "replicas": 1,
        "scrapeSelectedPods": [
            {"namespace": "ml", "port": 8000},
            {"matchLabels": {"example.com/app": "vllm"}, "port": "https-metrics", "https": True},
        ],
        "otlp": {"enabled": True, "clients": [{"namespace": "gpuscale", "name": "collector"}]},
    }
    bodies = render(Values.model_validate({"spec": {"scale": scales, "metricsApi": api}}))
    assert {"ClusterRoleBinding", "NetworkPolicy", "ScaledObject"} <= {b["kind"] for b in bodies}
    assert dry_run(plane, tmp_path, "collected.yaml", manifest(bodies)) == ""


def test_what_upstream_does_not_know_is_refused(plane, kinds, namespace, tmp_path: Path) -> None:
    bodies = rendered("eks", "operator", "keda", "default", "cert-manager", "prometheus")
    kept = [each for each in bodies if each["kind"] in ("ServiceMonitor", "ScaledObject", "Issuer")]
    for body in kept:
        body["spec"]["misspelt"] = True
    told = dry_run(plane, tmp_path, "misspelt.yaml", manifest(kept))
    assert len(kept) >= 3
    assert told.count(".spec.misspelt: field not declared in schema") == len(kept)


POOL = {
    "cluster": "prod",
    "region": "eu-west-1",
    "instanceType": "g5.xlarge",
    "gpu": "nvidia-a10g",
    "resourceGroup": "prod",
    "autoscaler": "karpenter",
}
CLOUDS = {"eks": "karpenter-aws", "aks": "karpenter-azure"}
TAINTS = ({"key": "nvidia.com/gpu", "value": "present"}, {"key": "sku", "value": "gpu"})


@pytest.mark.parametrize("provider", CLOUDS)
def test_each_karpenter_takes_its_node_pools(plane, tmp_path: Path, provider) -> None:
    texts = []
    for spot, zone, taint in itertools.product((True, False), (None, "eu-west-1a"), TAINTS):
        pool = {**POOL, "spot": spot, "zone": zone, "name": f"gpu{len(texts)}"}
        spec = {"provider": provider, "nodePool": pool, "taint": taint}
        (file,) = pool_files(Values.model_validate({"spec": spec}))
        texts.append(file.text)
    with upstream_kinds(plane, CLOUDS[provider]):
        assert dry_run(plane, tmp_path, "pools.yaml", "---\n".join(texts)) == ""


PODS = {
    "resources": {"requests": {"cpu": 1}, "limits": {"memory": "2Gi"}},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "sku", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}],
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
    ],
    "podAnnotations": {"a": "b"},
    "podLabels": {"azure.workload.identity/use": "true"},
    "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/r"}},
    "imagePullSecrets": [{"name": "registry"}],
    "podSecurityContext": {"supplementalGroups": [4]},
    "securityContext": {"readOnlyRootFilesystem": False},
    "dnsConfig": {"options": [{"name": "ndots", "value": "1"}]},
    "extraArgs": ["--debug"],
    "extraEnv": [{"name": "A", "value": "b"}],
    "extraVolumes": [{"name": "more", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
    "extraContainers": [{"name": "proxy", "image": "proxy:1"}],
}
KEY = {"name": "prom", "key": "k"}
ACCESS = {
    "basicAuth": {"username": KEY, "password": KEY},
    "headers": {"X-Scope-OrgID": KEY},
    "tlsConfig": {"ca": {"configMap": KEY}, "cert": {"secret": KEY}, "keySecret": KEY},
}


@pytest.mark.parametrize("kind", ["own", "plain"])
def test_settings_of_pods_and_credentials_are_taken(plane, tmp_path: Path, namespace, kind) -> None:
    peers = {"from": [{"namespaceSelector": {}}], "egress": [{"ports": [{"port": 8428}]}]}
    served: dict[str, object] = {
        **PODS,
        "service": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
    }
    served["networkPolicy"] = peers
    prometheus = {**served, **PROMETHEUS[kind], **({} if kind == "own" else {"auth": ACCESS})}
    spec = {
        "image": {"digest": "sha256:" + "a" * 64},
        "agent": {**served, "customMetricsConfigMap": KEY, "hostNetwork": True},
        "metricsApi": served,
        "prometheus": prometheus,
        "devicePlugin": {**PODS, "enabled": True},
    }
    values = Values.model_validate({"spec": spec})
    objects = render(values, RenderInputs(make_certificate(values, NOW_MS)))
    assert dry_run(plane, tmp_path, "pods.yaml", manifest(objects)) == ""
