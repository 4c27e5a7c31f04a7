# mypy: disable-error-code="arg-type, attr-defined, list-item"
"""Helm renders of the chart what we render of it in process, object by object."""

import base64
import itertools
import random
import subprocess
from pathlib import Path

import pytest
from chart_objects import CHART, HELM, assert_same, by_name, needs_helm, template, templates
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from install_values import rendered, scale
from pydantic import ValidationError

from examples import at_most
from gpuscale.base.documents.described import (
    described_schema,
    fields_without_description,
    models_in,
)
from gpuscale.base.documents.documents import load_documents
from gpuscale.ops.install.chart.made import chart_files
from gpuscale.ops.install.values import Values

IDLE_FIRST = [
    {"namespace": "prod", "workload": name, "metric": "gpu_utilization"} for name in ("a", "b")
]
FEDERATED = [
    {"name": "keda", "caBundle": "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n"},
    {
        "name": "prometheus-adapter",
        "target": "other/adapter:6443",
        "insecure": True,
        "groups": ["custom"],
        "metrics": ["http_*", "queue"],
    },
    {"name": "far", "target": "https://metrics.example.com", "metrics": ["far_*"]},
]
URL = "https://prometheus.monitoring.svc:9091/path"


def test_what_the_chart_has_of_the_code_is_fresh() -> None:
    made = chart_files()
    there = {name: (CHART / name).read_text() for name in made}
    assert there == made, "run `python -m gpuscale.ops.install.chart`"
    found = (path for path in (CHART / "files").iterdir() if path.is_file())
    files = {path.relative_to(CHART).as_posix() for path in found}
    assert files <= set(made), "nothing makes these files"


def test_every_field_says_what_it_is_for() -> None:
    assert fields_without_description(described_schema(Values)) == []


NOT_AMONG_OPTIONS = (
    "apiVersion",
    "kind",
    "metadata.name",  # of each second case
    "spec.namespace",  # the release's
    "spec.nodePool",  # files for other programs, which no template makes
    "spec.jobs.jobFile",  # read before
    "spec.jobs.wake.deadline",  # refused
    "spec.prometheus.auth.headers",  # by names of one's own
    # As autoscaling/v2 has them, and passed through.
    "spec.scale.behavior",
    *(
        f"spec.scale.metrics.{kind}"
        for kind in ("pods", "object", "external", "resource", "containerResource")
    ),
)


def fields_of(model, seen=()):
    """Yield every path of a values file, with the models of a list's elements as if they stood alone."""
    for name, field in model.model_fields.items():
        inner = {each: None for each in models_in(field.annotation) if each not in seen}
        for each in inner:
            yield from (f"{field.alias or name}.{path}" for path in fields_of(each, (*seen, each)))
        if not inner:
            yield field.alias or name


def paths_of(data, path):
    yield path
    if isinstance(data, dict):
        for key, value in data.items():
            yield from paths_of(value, f"{path}.{key}")
    elif isinstance(data, list | tuple):
        for value in data:
            yield from paths_of(value, path)


def test_every_field_is_among_the_options_that_are_compared_with_helm() -> None:
    """A field that stays at its default everywhere would not be missed by a template that forgets it."""
    given = {path for each in OPTIONS.values() for one in each for path in paths_of(one, "spec")}
    missing = [
        path
        for path in fields_of(Values)
        if path not in given
        and not any(path == each or path.startswith(f"{each}.") for each in NOT_AMONG_OPTIONS)
    ]
    assert missing == [], "give each a value that is not its default, in OPTIONS"


def test_the_charts_values_are_all_defaults() -> None:
    (document,) = load_documents((CHART / "values.yaml").read_text(), "values.yaml")
    defaults = Values.model_validate({"spec": {}})
    assert document.data == defaults.model_dump(mode="json", by_alias=True)
    assert Values.model_validate(document.data) == defaults


SELECTED = [
    {"namespace": "ml", "matchLabels": {"b": "c", "app": "vllm"}, "port": 8000},
    {"matchLabels": {"a.b/c": "1"}, "port": "https-metrics", "path": "/a?b=c", "https": True},
    {"namespace": "team-b", "port": 65535},
]
PUSHED = {
    "enabled": True,
    "promote": ["k8s.pod.name", "service.version"],
    "clients": [
        {"namespace": "observability", "name": "otel-collector"},
        {"namespace": "ml", "name": "web"},
    ],
}
COLLECTED = {"source": "streams", "scrapeSelectedPods": SELECTED, "replicas": 1}
FULLNESS = [
    {
        "combined": "vllm_fullness",
        "parts": [
            {"signal": "vllm-waiting", "threshold": 5},
            {"signal": "vllm-kv-cache", "threshold": 0.8},
            {"signal": "gpu-utilization", "threshold": 90},
        ],
    },
    {"signal": "vllm-ttft", "target": 2},
    {
        "combined": "busy",
        "parts": [{"signal": "graphics-engine", "threshold": 0.9}],
        "target": 0.8,
    },
]
ALERTING = {
    "prometheusRules": "groups: []\n",
    "alertmanagers": ["https://a:9093", "https://b:9093"],
}
RULE_WITH_BRACES = 'groups:\n- {name: g,rules: [{alert: A,expr: x, labels: {a: "{{ $value }}"}}]}\n'
QUEUE = {
    "type": "External",
    "external": {
        "metric": {"name": "queue_length", "selector": {"matchLabels": {"queue": "bert"}}},
        "target": {"type": "AverageValue", "averageValue": 30},
    },
}
OF_SERVICE = {
    "type": "Object",
    "object": {
        "metric": {
            "name": "requests",
            "selector": {"matchExpressions": [{"key": "v", "operator": "In", "values": ["a"]}]},
        },
        "describedObject": {"apiVersion": "v1", "kind": "Service", "name": "web"},
        "target": {"type": "Value", "value": "1k"},
    },
}
OF_PODS = {
    "type": "Pods",
    "pods": {
        "metric": {"name": "vllm_num_requests_waiting"},
        "target": {"type": "AverageValue", "averageValue": "2500m"},
    },
}
CPU = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
}
MEMORY_OF_ONE = {
    "type": "ContainerResource",
    "containerResource": {
        "name": "memory",
        "container": "model",
        "target": {"type": "AverageValue", "averageValue": "12Gi"},
    },
}
FAST_AND_SLOW = {
    "scaleUp": {
        "stabilizationWindowSeconds": 0,
        "selectPolicy": "Max",
        "policies": [
            {"type": "Pods", "value": 4, "periodSeconds": 30},
            {"type": "Percent", "value": 100, "periodSeconds": 60},
        ],
        "tolerance": "0.05",
    },
    "scaleDown": {"stabilizationWindowSeconds": 0, "selectPolicy": "Disabled"},
}
BY_QUERY = {"query": 'sum(vllm:num_requests_waiting{model="bert \\"x\\""})', "target": 2.5}

CREDIT = {"waiting": "sum(w)", "throughput": 'sum(rate(done{a="b"}[1m]))'}
CREDITED = {**BY_QUERY, "credit": {**CREDIT, "startTime": "3m", "drain": "2m"}}
WANTED = [
    {**BY_QUERY, "policy": {"name": "trend", "startTime": "3m", **more}}
    for more in (
        {"settings": {"spare": 2, "headroom": 1.3}},
        {"lag": "30s", "learn": "7d"},
    )
]


def by_metrics(*metrics, **changes):
    return {"workload": {"name": "many"}, "maxReplicas": 8, "metrics": list(metrics), **changes}


WAKE = {
    "sources": ["llm-d-queue", "istio"],
    "name": "pool",
    "threshold": 0.5,
    "replicas": 2,
    "deadline": "20m",
    "hold": "30m",
    "fallbackReplicas": 3,
}
WAKES = {key: value for key, value in WAKE.items() if key != "deadline"}
CUSTOM = {
    "strategy": "custom",
    "customScalingQueueLengthDeduction": 2,
    "customScalingRunningJobPercentage": "0.5",
    "pendingPodConditions": ["Ready", "PodScheduled"],
    "multipleScalersCalculation": "sum",
}


def scaled_job(**changes):
    limits = {"nvidia.com/gpu": 1}
    container = {"name": "train", "image": "train:1", "resources": {"limits": limits}}
    pod = {"containers": [container], "restartPolicy": "Never"}
    job = {"template": {"spec": pod}, "backoffLimit": 0, "activeDeadlineSeconds": 2_000_000}
    return {"name": "train", "job": job, "maxReplicas": 8, **changes}


BY_SCHEDULE = {
    "start": "0 8 * * 1-5",
    "end": "0 18 * * 1-5",
    "timezone": "Europe/Berlin",
    "query": 'sum(q{a="b"})',
}
TWO_QUERIES = [
    by_metrics(
        *({**BY_QUERY, "targetType": "Value"}, BY_QUERY, {"query": "sum(b)", "target": 3}, CPU),
        workload={"name": "two", "kind": "StatefulSet", "namespace": "ml"},
        autoscaler="keda",
        minReplicas=1,
    )
]
OF_SECRET = {"name": "prom", "key": "k"}
PODS = {
    "resources": {"requests": {"cpu": 1, "nvidia.com/gpu": "1"}, "limits": {"memory": "1.5Gi"}},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "sku", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]
            }
        }
    },
    "topologySpreadConstraints": [
        {"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    ],
    "priorityClassName": "high",
    "podAnnotations": {"sidecar.istio.io/inject": "false"},
    "podLabels": {"azure.workload.identity/use": "true"},
    "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/r"}},
    "imagePullSecrets": [{"name": "part"}],
    "podSecurityContext": {"supplementalGroups": [4], "fsGroup": 1},
    "securityContext": {"readOnlyRootFilesystem": False, "capabilities": {"add": ["SYS_PTRACE"]}},
    "extraArgs": ["--log-format=json", "--x={{ not a template }}"],
    "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
    "extraVolumes": [{"name": "more", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
    "extraContainers": [{"name": "proxy", "image": "proxy:1", "args": ["--port=8005"]}],
    "dnsConfig": {"options": [{"name": "ndots", "value": "1"}]},
}
ID = "00000000-0000-0000-0000-0000000000aa"
OF_AZURE = {
    "type": "AzureMonitor",
    "azureMonitor": {
        "resourceUri": "Microsoft.ServiceBus/namespaces/training",
        "tenantId": ID,
        "subscriptionId": ID,
        "resourceGroupName": "ml",
        "metricName": "ActiveMessages",
        "metricFilter": "EntityName eq 'jobs'",
        "metricAggregationType": "Total",
        "metricAggregationInterval": "0:10:0",
        "metricNamespace": "Microsoft.ServiceBus",
        "cloud": "AzureUSGovernmentCloud",
        "target": 4.5,
        "targetType": "Value",
    },
}
WITH_SERVICE = {
    **PODS,
    "service": {"annotations": {"a.b/c": "1"}, "labels": {"team": "ml"}},
    "networkPolicy": {
        "from": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
        "egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}], "ports": [{"port": 8428}]}],
    },
}
BARE = {
    "resources": {"limits": {"memory": None}},
    "tolerations": [],
    "affinity": {},
    "topologySpreadConstraints": [],
    "priorityClassName": None,
    "serviceAccount": {"create": False, "name": "mine"},
    "hostNetwork": True,
}
AUTH = [
    {},
    {"prometheus": {"auth": {"authorization": {"credentials": OF_SECRET}}}},
    {
        "prometheus": {
            "auth": {
                "basicAuth": {"username": "12345", "password": OF_SECRET},
                "headers": {"X-Scope-OrgID": "a|b", "Another": OF_SECRET},
                "tlsConfig": {"ca": {"configMap": OF_SECRET}},
            }
        }
    },
    {
        "prometheus": {
            "auth": {
                "basicAuth": {"username": OF_SECRET, "password": OF_SECRET},
                "tlsConfig": {
                    "ca": {"secret": OF_SECRET},
                    "cert": {"secret": OF_SECRET},
                    "keySecret": OF_SECRET,
                },
            }
        }
    },
    {
        "prometheus": {
            "auth": {"tlsConfig": {"cert": {"configMap": OF_SECRET}, "keySecret": OF_SECRET}}
        }
    },
]
OPTIONS = {
    "auth": AUTH,
    "agent": [
        {},
        {"agent": {**WITH_SERVICE, "updateStrategy": {"type": "OnDelete"}}},
        {"agent": {**BARE, "customMetrics": "DCGM_FI_DEV_GPU_TEMP, gauge, Heat (in C).\n"}},
        {"agent": {"customMetricsConfigMap": {"name": "counters", "key": "metrics"}}},
        {
            "agent": {
                "settings": {
                    "readings": {"streamInterval": 100, "devices": "g:0,1"},
                    "series": {"names": "both", "xidCountWindowSize": 3600000},
                    "kubernetes": {"nvidiaResourceNames": ["a.example/gpu", "b.example/gpu"]},
                },
                "customMetrics": "DCGM_FI_DEV_GPU_TEMP, gauge, Heat (in C).\n",
                "podAnnotations": {"a": "b"},
            }
        },
    ],
    "apiPods": [
        {},
        {"metricsApi": {**WITH_SERVICE, "updateStrategy": {"type": "Recreate"}}},
        {"metricsApi": {**BARE, "dnsPolicy": "Default"}},
        {"metricsApi": {"resources": {"limits": {"memory": "2500M"}}}},
        {
            "metricsApi": {
                "settings": {
                    "metrics": {"valueMaxAge": "1m", "maxAge": "5m", "widenQueries": False},
                    "logging": {"verbosity": 4},
                    "authorization": {"alwaysAllowPaths": ["/healthz", "/metrics"]},
                },
                "podAnnotations": {"a": "b"},
            }
        },
    ],
    "prometheusPods": [
        {},
        {"prometheus": {**WITH_SERVICE, "updateStrategy": {"type": "Recreate"}}},
        {"prometheus": BARE},
    ],
    "pluginPods": [{}, {"devicePlugin": PODS}, {"devicePlugin": {**BARE, "resources": {}}}],
    "provider": [{"provider": each} for each in ("aks", "eks", "ack", "gke", "generic")],
    "prometheus": [
        {"prometheus": {"kind": "own"}},
        {
            "prometheus": {
                "kind": "own",
                "image": "r.example.com/prometheus:v3",
                "dnsPolicy": "None",
            }
        },
        {"prometheus": {"kind": "operator", "url": URL, "release": "kps"}},
        {"prometheus": {"kind": "operator", "url": URL}},
        {"prometheus": {"kind": "plain", "url": "http://p", "scrapeInterval": "30s"}},
        {"prometheus": {"kind": "plain", "url": "https://p"}},
        {"prometheus": {"kind": "azure", "url": "https://w", "identity": ID}},
    ],
    "honorLabels": [{}, {"prometheus": {"honorLabels": False}}],
    "api": [
        {},
        {"metricsApi": {"enabled": False}},
        {"metricsApi": {"externalName": "api.example.com", "port": 8443}},
        {"metricsApi": {"replicas": 3}},
    ],
    "external": [
        {},
        {"metricsApi": {"external": True, "rulesConfigMaps": "team=ml"}},
        {"metricsApi": {"external": True, "federate": FEDERATED}},
    ],
    "certificates": [
        {},
        {"metricsApi": {"certificates": "cert-manager"}},
        {"metricsApi": {"certificates": "cert-manager", "issuer": "corp"}},
    ],
    "source": [
        {},
        {"metricsApi": {"resource": True}},
        {"metricsApi": {"source": "streams"}},
        {"metricsApi": {"source": "streams", "shareAgents": False, "scrapePods": True}},
        {
            "metricsApi": {
                "source": "streams",
                "scrapePods": True,
                "exporterPods": "gpu-operator,a/app=b",
            }
        },
        {"metricsApi": {**COLLECTED, "otlp": PUSHED}},
        {"metricsApi": {"source": "streams", "prometheusRules": RULE_WITH_BRACES}},
        {"metricsApi": {"source": "streams", **ALERTING, "storeSize": "512Mi"}},
        {
            "metricsApi": {
                "source": "streams",
                "remoteWriteSecret": "receivers",
                "remoteWritePort": 19291,
            }
        },
        {"metricsApi": {"source": "streams", **ALERTING, "alertmanagerCaSecret": "ca"}},
        {"metricsApi": {"source": "streams", **ALERTING, "alertmanagerTokenSecret": "token"}},
    ],
    "rules": [
        {},
        {"metricsApi": {"rules": 'rules:\n- seriesQuery: "a{{b}}"\n'}},
        {"metricsApi": {"rulesConfigMaps": "rules in (a, b),!old"}},
        {"metricsApi": {"preset": True}},
        {"metricsApi": {"idleFirst": IDLE_FIRST}},
    ],
    "whose": [
        {},
        {"agent": {"enabled": False}},
        {"agent": {"attribution": "none"}},
        {"agent": {"attribution": "processes", "style": "both"}},
        {"agent": {"azureMetrics": True}},
        {"agent": {"readyTaint": "gpuscale.dev/gpu-not-ready"}},
        {
            "agent": {
                "attribution": "processes",
                "readyTaint": "startup-taint.cluster-autoscaler.kubernetes.io/gpuscale",
                "serviceAccount": {"create": False, "name": "agents"},
            }
        },
    ],
    "agentTls": [
        {},
        {"agent": {"tls": {"secret": "agent-tls"}}},
        {
            "agent": {
                "tls": {"secret": "agent-tls", "serverName": "agents.example"},
                "basicAuth": {"usersSecret": "users", "clientSecret": "scraper"},
            }
        },
    ],
    "driver": [
        {},
        {"agent": {"deviceAccess": "host", "collectInterval": "500ms"}},
        {"agent": {"runtimeClass": "nvidia", "podResourcesPath": "/var/lib/k0s/pod-resources"}},
        {"agent": {"serviceName": "dcgm-exporter"}},
        {"agent": {"image": "registry.example.com/gpuscale-agent:0.1.0"}},
        {"agent": {"hostNetwork": True, "dnsPolicy": "ClusterFirst"}},
    ],
    "plugin": [
        {},
        {"devicePlugin": {"enabled": True}},
        {"devicePlugin": {"enabled": True, "replicas": 4, "migStrategy": "mixed"}},
        {
            "devicePlugin": {
                "enabled": True,
                "image": "r.example.com/plugin:1",
                "dnsPolicy": "Default",
                "updateStrategy": {"type": "OnDelete"},
            }
        },
    ],
    "scale": [
        {"scale": each}
        for each in (
            [],
            [scale(workload={"name": "a.b"}, autoscaler="keda", target=62.5)],
            [scale(metric="object"), scale(workload={"kind": "StatefulSet", "name": "llm"})],
            [
                scale(hpaVersion="autoscaling/v2beta1"),
                scale(workload={"name": "c", "namespace": "ml"}),
            ],
            [
                scale(
                    hpaVersion="autoscaling/v2beta2",
                    metric="object",
                    scaleDownStabilizationSeconds=0,
                )
            ],
            [scale(signal="graphics-engine", target=0.7, autoscaler="keda")],
            [scale(signal="ack-memory-ratio", target=0.7, autoscaler="keda")],
            [scale(signal="gpu-share", workload={"kind": "StatefulSet", "name": "llm"})],
            [
                scale(signal="epp-queue", of="pool", target=3),
                scale(query="sum(q)", target=4, workload={"name": "q"}),
            ],
            [by_metrics({"signal": "epp-queue", "of": "pool", "target": 3}, autoscaler="keda")],
            [by_metrics({"target": 60, "metric": "object"}, CPU, MEMORY_OF_ONE, OF_PODS)],
            [
                by_metrics(
                    {"signal": "gpu-memory", "target": 12000},
                    QUEUE,
                    OF_SERVICE,
                    minReplicas=0,
                    behavior=FAST_AND_SLOW,
                )
            ],
            [
                by_metrics(
                    {"target": 60, "metric": "object"},
                    *(QUEUE, OF_SERVICE, OF_PODS, CPU, MEMORY_OF_ONE),
                    hpaVersion="autoscaling/v2beta1",
                )
            ],
            [
                by_metrics(
                    *(QUEUE, MEMORY_OF_ONE),
                    hpaVersion="autoscaling/v2beta2",
                    behavior={"scaleUp": {"selectPolicy": "Min"}},
                    scaleDownStabilizationSeconds=60,
                )
            ],
            [
                by_metrics(
                    *({"target": 60}, BY_QUERY, {**BY_QUERY, "targetType": "Value"}),
                    *(CPU, MEMORY_OF_ONE),
                    minReplicas=0,
                    autoscaler="keda",
                    behavior=FAST_AND_SLOW,
                )
            ],
            [scale(minReplicas=0, autoscaler="keda", wake=WAKE), *TWO_QUERIES],
            [scale(minReplicas=0, wake=BY_SCHEDULE), by_metrics(BY_QUERY, CPU, minReplicas=0)],
            [scale(minReplicas=2, wake=WAKE, hpaVersion="autoscaling/v2beta1")],
            [by_metrics(OF_AZURE, autoscaler="keda", minReplicas=0), scale(autoscaler="keda")],
            [
                by_metrics(*FULLNESS, autoscaler="keda"),
                scale(workload={"name": "old"}, target=None, metrics=FULLNESS[:1], metricsPort=9),
            ],
            [
                by_metrics({**BY_QUERY, "credit": {**CREDIT, "drain": "5m"}}, CREDITED),
                by_metrics(*WANTED, workload={"name": "wanted"}, minReplicas=2),
            ],
            [
                by_metrics(CREDITED, autoscaler="keda", minReplicas=0),
                by_metrics(
                    *WANTED[:1],
                    workload={"name": "wanted"},
                    autoscaler="keda",
                    behavior={"scaleUp": {"selectPolicy": "Min"}},
                    scaleDownStabilizationSeconds=60,
                ),
            ],
        )
    ],
    "keda": [
        {},
        {"keda": {"trigger": "prometheus"}},
        {"keda": {"trigger": "prometheus", "azureIdentity": ID}},
        {"keda": {"azureIdentity": ID}},
        {
            "keda": {"tlsSecret": "keda", "cooldownPeriodSeconds": 600},
            "scaler": {"tlsSecret": "own"},
        },
        {
            "keda": {"tlsSecret": "keda", "pollingIntervalSeconds": 30, "failureThreshold": 0},
            "scaler": {"tlsSecret": "own", "clientCertificates": True, "port": 7000},
        },
    ],
    "jobs": [
        {},
        {
            "jobs": [
                scaled_job(metrics=[{**BY_QUERY, "target": 4}, {"query": "sum(b)"}], wake=WAKES)
            ]
        },
        {
            "jobs": [
                scaled_job(namespace="ml", wake=BY_SCHEDULE, minReplicas=1, scalingStrategy=CUSTOM),
                scaled_job(
                    metrics=[{"query": "sum(b)"}],
                    pollingIntervalSeconds=5,
                    rollout="immediate",
                    successfulJobsHistoryLimit=0,
                    failedJobsHistoryLimit=7,
                ),
            ]
        },
    ],
    "scalerPods": [
        {},
        {"scaler": {**WITH_SERVICE, "replicas": 3, "updateStrategy": {"type": "Recreate"}}},
        {"scaler": {**BARE, "dnsPolicy": "Default"}},
        {"scaler": {"resources": {"limits": {"memory": "2500M"}}}},
        {"scaler": {"settings": {"limits": {"maxStreams": 16000}, "metrics": {"maxAge": "5m"}}}},
        {"scaler": {"enabled": False}},
    ],
    "samples": [
        {},
        {
            "samples": {"bert": True, "namespace": "ml"},
            "taint": {"key": "sku", "value": "gpu", "effect": "NoExecute"},
        },
        {"samples": {"visionImage": "v:1", "mnistJobs": 20}},
    ],
    "network": [{}, {"networkPolicies": False}],
    "recording": [{}, {"recordingRules": False}],
    "alerts": [
        {},
        {"alerts": {"enabled": False}},
        {"alerts": {"idle": "1h", "nodeStart": "25m", "docsUrl": "https://x/y"}},
    ],
    "dashboards": [
        {},
        {"dashboards": {"enabled": False}},
        {
            "dashboards": {
                "namespace": "grafana",
                "label": "my_board",
                "folder": "GPUs",
                "gpuHourPrice": 1234.56789,
                "currency": "EUR",
            }
        },
    ],
    "image": [
        {},
        {"image": {"repository": "r.example.com/g", "tag": "1", "pullSecret": "s"}},
        {"image": {"pullPolicy": "Never"}},
        {
            "image": {"digest": "sha256:" + "0123456789abcdef" * 4},
            "imagePullSecrets": [{"name": "all"}],
        },
    ],
}


def merged(*parts):
    found = {}
    for part in parts:
        for key, value in part.items():
            is_group = isinstance(value, dict)
            found[key] = merged(found.get(key, {}), value) if is_group else value
    return found


def is_allowed(choice):
    try:
        Values.model_validate({"spec": merged(*choice.values())})
    except ValidationError:
        return False
    return True


def generated(rng):
    """A values file of options that go together: of each kind the first of a random order that does."""
    found = {}
    for kind in rng.sample(sorted(OPTIONS), len(OPTIONS)):
        options = rng.sample(OPTIONS[kind], len(OPTIONS[kind]))
        fitting = (each for each in options if is_allowed({"found": found, "more": each}))
        found = merged(found, next(fitting, {}))
    return found


CASES = 4
"""Values files that one Helm renders."""


@needs_helm
@pytest.mark.timeout(600)
@given(seed=st.integers(0, 2**32 - 1))
@settings(
    at_most(125), phases=[Phase.explicit, Phase.generate]
)  # a smaller seed is no smaller case
def test_helm_renders_the_same_objects(tmp_path_factory, seed) -> None:
    rng = random.Random(seed)
    specs = [generated(rng) for _ in range(CASES)]
    assert_all_the_same(specs, tmp_path_factory.mktemp("helm"))


@needs_helm
def test_helm_renders_each_option_alone_as_we_do(tmp_path) -> None:
    """So that none is left out because it never goes together with another."""
    alone = [each for options in OPTIONS.values() for each in options]
    assert_all_the_same([each for each in alone if is_allowed({"alone": each})], tmp_path)


def assert_all_the_same(specs, folder) -> None:
    names = itertools.cycle(["gpuscale", "team-gpus"])
    documents = [
        {"metadata": {"name": name}, "spec": spec} for name, spec in zip(names, specs, strict=False)
    ]
    for document, objects in zip(documents, templates(documents, folder), strict=True):
        assert_same(objects, rendered(Values.model_validate(document)))


TAKEN_AWAY: list[dict[str, object]] = [
    {"resources": {"limits": {"cpu": None}}},  # no default to take away: Helm keeps the null
    {"resources": {"limits": {"memory": None}, "requests": {"cpu": None}}},
    {"resources": {"limits": {"memory": None, "cpu": None, "example.com/x": None}}},
    {"securityContext": {"runAsUser": None}},
    {"securityContext": {"seccompProfile": {"type": "Unconfined", "localhostProfile": None}}},
]


@needs_helm
def test_null_takes_away_with_helm_as_with_the_renderer(tmp_path) -> None:
    specs = [
        {part: {"enabled": True, **settings}}
        for settings in TAKEN_AWAY
        for part in ("agent", "metricsApi", "scaler")
    ]
    assert_all_the_same(specs, tmp_path)


@needs_helm
def test_helm_has_a_prometheus_where_the_renderer_has_one(tmp_path) -> None:
    specs = [
        {
            "prometheus": kind,
            "metricsApi": api,
            "alerts": {"enabled": alerts},
            "dashboards": {"enabled": dashboards},
        }
        for kind in ({}, {"kind": "plain", "url": URL})
        for api in ({}, {"enabled": False}, {"source": "streams"})
        for alerts, dashboards in ((True, False), (False, True), (False, False))
    ]
    assert_all_the_same(specs, tmp_path)


@needs_helm
def test_the_charts_certificate_is_for_the_service_and_signed_by_its_bundle(tmp_path: Path) -> None:
    elsewhere = {"metricsApi": {"externalName": "api.example.com"}}
    objects = by_name(template(elsewhere, tmp_path))
    secret = objects["Secret", "gpuscale", "gpuscale-metrics-api-tls"]["data"]
    service = objects["APIService", None, "v1beta2.custom.metrics.k8s.io"]
    assert service["spec"]["caBundle"] == secret["ca.crt"]
    for name in ("ca.crt", "tls.crt"):
        (tmp_path / name).write_bytes(base64.b64decode(secret[name]))
    host = "gpuscale-metrics-api.gpuscale.svc"
    command = ["openssl", "verify", "-verify_hostname", host, "-CAfile"]
    files = [tmp_path / "ca.crt", tmp_path / "tls.crt"]
    assert subprocess.run([*command, *files], capture_output=True, check=False).returncode == 0


@needs_helm
def test_helm_finds_nothing_to_complain_of(tmp_path: Path) -> None:
    done = subprocess.run([HELM, "lint", "--strict", CHART], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_helm
def test_a_wrong_values_file_is_refused_by_its_schema(tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text("spec: {provider: aws, prometheus: {scrapeInterval: 15}}")
    command = [HELM, "template", "any", CHART, f"--values={tmp_path / 'values.yaml'}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "provider" in done.stderr
    assert "scrapeInterval" in done.stderr
