"""Values files of other projects' charts: known by their keys, judged as what each chart makes of them.

Keys and defaults are those of the charts that `ops.lint.charts` names.
"""

import pytest

from gpuscale.ops.lint import lint

POOL = """\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: gpu}
spec:
  limits: {nvidia.com/gpu: 8}
  template:
    spec:
      expireAfter: Never
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: gpu}
      taints: [{key: TAINT, value: "true", effect: NoSchedule}]
      requirements: [{key: node.kubernetes.io/instance-type, operator: In, values: [g6.12xlarge, g6.xlarge]}]
"""
TEAM = POOL.replace("TAINT", "team")
MODEL = """\
servingEngineSpec:
  tolerations: [{key: team, operator: Exists}]
  modelSpec:
  - name: llama
    repository: vllm/vllm-openai
    tag: v0.11.0
    replicaCount: 2
    requestCPU: 10
    requestMemory: 64Gi
    requestGPU: 1
    vllmConfig:
      maxNumSeqs: 8
    keda:
      enabled: true
      minReplicaCount: 1
      maxReplicaCount: 4
      triggers:
      - type: prometheus
        metadata:
          serverAddress: http://prometheus:9090
          query: sum(vllm:num_requests_waiting)
          threshold: "5"
"""
SLICED = """\
devicePlugin:
  config:
    name: shared
    create: true
    data:
      any: |-
        sharing:
          timeSlicing:
            resources:
            - name: nvidia.com/gpu
              replicas: 4
"""
TWO_GPUS = """\
apiVersion: v1
kind: Pod
metadata: {name: two}
spec: {containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 2}}}]}
"""
MIG = TWO_GPUS.replace("nvidia.com/gpu: 2", "nvidia.com/mig-1g.10gb: 1")
ALERT = """\
    groups:
    - name: gpu
      rules:
      - alert: Busy
        expr: DCGM_FI_PROF_SM_ACTIVE > 0.9
"""
ALERTS = f"additionalPrometheusRulesMap:\n  gpu:\n{ALERT}"
OF_THE_PLUGINS_CHART = SLICED.replace(
    "devicePlugin:\n  config:\n    name: shared\n    create: true\n    data:", "config:\n    map:"
)
ROUTER = f"""\
{MODEL}routerSpec:
  autoscaling: {{enabled: true}}
  resources: {{limits: {{memory: 1Gi}}}}
"""
UNDER_ITS_NAME = f"""\
kube-prometheus-stack:
  additionalPrometheusRules:
  - name: gpu
{ALERT.replace("0.9", "90")}"""
TARGET = "spec.metrics[0].pods.target.averageValue"
GPUS = "spec.containers[0].resources.limits.nvidia.com/gpu"
HPA = """\
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: llm}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: vllm-llama-deployment-vllm}
  maxReplicas: 4
  metrics:
  - type: Pods
    pods: {metric: {name: running}, target: {type: AverageValue, averageValue: 32}}
"""
RULES = """\
- seriesQuery: vllm:num_requests_running{namespace!="",pod!=""}
  resources: {template: <<.Resource>>}
  name: {as: running}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""
SPEC = "servingEngineSpec.modelSpec[0]"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({"v.yaml": MODEL}, [], id="a model as the chart's tutorials have it"),
        pytest.param(
            {"v.yaml": MODEL.replace("maxReplicaCount: 4", "maxReplicaCount: 1")},
            [("min-is-max", 16, f"{SPEC}.keda.maxReplicaCount")],
            id="the limits of a model's ScaledObject",
        ),
        pytest.param(
            {"v.yaml": MODEL.replace('"5"', '"5 requests"')},
            [("threshold-not-positive", 22, f"{SPEC}.keda.triggers[0].metadata.threshold")],
            id="a trigger of it",
        ),
        pytest.param(
            {"v.yaml": MODEL.replace("requestGPU: 1", "requestGPU: 1.5")},
            [("refused-manifest", 10, f"{SPEC}.requestGPU")],
            id="requestGPU is a number of GPUs",
        ),
        pytest.param(
            {"v.yaml": MODEL.replace("requestGPU: 1", "requestGPU: 16"), "pool.yaml": TEAM},
            [("fits-no-pool", 4, SPEC), ("pools-below-max", 16, f"{SPEC}.keda.maxReplicaCount")],
            id="a model larger than any node",
        ),
        pytest.param(
            {
                "v.yaml": MODEL.replace("enabled: true", "enabled: false"),
                "hpa.yaml": HPA,
                "r.yaml": RULES,
            },
            [("above-server-limit", 9, TARGET)],
            id="an HPA beside the values, above vLLM's own limit",
        ),
        pytest.param(
            {"v.yaml": ROUTER},
            [("no-resource-request", 24, "routerSpec.autoscaling")],
            id="the router's HPA",
        ),
        pytest.param(
            {"op.yaml": "migManager: {enabled: true}\n", "pod.yaml": MIG},
            [("no-mig-resources", 4, "spec.containers[0].resources.limits.nvidia.com/mig-1g.10gb")],
            id="the operator's MIG strategy, which is single by default",
        ),
        pytest.param(
            {"op.yaml": "mig: {strategy: mixed}\n", "pod.yaml": MIG},
            [],
            id="and may be mixed",
        ),
        pytest.param(
            {"op.yaml": SLICED, "pod.yaml": MIG},
            [],
            id="or one that the plugin's configuration says",
        ),
        pytest.param(
            {"op.yaml": SLICED, "pod.yaml": TWO_GPUS},
            [("several-shares", 4, GPUS)],
            id="the operator's time-slicing",
        ),
        pytest.param(
            {"op.yaml": SLICED.replace("create: true", "create: false"), "pod.yaml": TWO_GPUS},
            [],
            id="which is not made",
        ),
        pytest.param(
            {"nvidia-device-plugin/values.yaml": OF_THE_PLUGINS_CHART, "pod.yaml": TWO_GPUS},
            [("several-shares", 4, GPUS)],
            id="the device plugin's own chart, by its name and usual keys",
        ),
        pytest.param(
            {
                "op.yaml": "dcgmExporter: {enabled: true}\ndevicePlugin: {enabled: false}\n",
                "pool.yaml": TEAM,
            },
            [("kept-from-pool", 1, "daemonsets.tolerations")],
            id="the operator's exporter tolerates nvidia.com/gpu alone",
        ),
        pytest.param(
            {
                "op.yaml": "dcgmExporter: {enabled: true}\n",
                "pool.yaml": POOL.replace("TAINT", "nvidia.com/gpu"),
            },
            [],
            id="which the chart adds",
        ),
        pytest.param(
            {
                "d.yaml": "kubeletPath: /var/lib/kubelet/pod-resources\n",
                "pool.yaml": POOL.replace("TAINT", "nvidia.com/gpu"),
            },
            [("kept-from-pool", 1, "tolerations")],
            id="the exporter's own chart does not",
        ),
        pytest.param(
            {"d.yaml": "tlsServerConfig: {autoGenerated: true}\n", "p.yaml": ALERTS},
            [
                (
                    "series-not-exported",
                    7,
                    "additionalPrometheusRulesMap.gpu.groups[0].rules[0].expr",
                )
            ],
            id="a series that is off in the exporter's default list",
        ),
        pytest.param(
            {
                "d.yaml": "customMetrics: |\n  DCGM_FI_PROF_SM_ACTIVE, gauge, busy\n",
                "p.yaml": ALERTS,
            },
            [],
            id="and on in its own",
        ),
        pytest.param(
            {"d.yaml": "customMetrics: |\n  DCGM_FI_DEV_GPU_UTIL, gage, busy\n"},
            [("wrong-counters", 2, "customMetrics")],
            id="a row with a fault",
        ),
        pytest.param(
            {"d.yaml": "kubeletPath: /k\narguments: [-f, /etc/own/rows.csv]\n", "p.yaml": ALERTS},
            [],
            id="a list that no file has",
        ),
        pytest.param(
            {"p.yaml": UNDER_ITS_NAME},
            [
                (
                    "wrong-unit",
                    8,
                    "kube-prometheus-stack.additionalPrometheusRules[0].groups[0].rules[0].expr",
                )
            ],
            id="under the chart's name, in values of a chart around it",
        ),
    ],
)
def test_values_are_judged_as_what_the_chart_makes_of_them(files, expected) -> None:
    report = lint(list(files.items()))
    found = [
        (each.check.id, each.where.line, each.where.field)
        for each in report.findings
        if each.check.severity.value != "note"
    ]
    assert found == expected
    charts = [text for text in files.values() if "apiVersion" not in text and text != RULES]
    assert report.values == len(charts)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("values.yaml", "image: {repository: web}\nresources: {}\n"),
        ("dcgm-exporter-values.yaml", "image: {repository: web}\nreplicaCount: 2\n"),
        ("docker-compose.yaml", "services: {web: {image: web}}\n"),
    ],
)
def test_other_values_are_passed_over(name: str, text: str) -> None:
    report = lint([(name, text)])
    assert ([each.source for each in report.skipped], report.has_checked) == ([name], False)


def test_rules_under_the_adapters_name_are_read_with_their_lines() -> None:
    rules = RULES.replace("sum(<<.Series>>", "sum(rate(<<.Series>>").replace(") by", "[5m])) by")
    inside = "".join(f"      {line}\n" for line in rules.splitlines())
    head = "image: web\nprometheus-adapter:\n  rules:\n    default: false\n    custom:\n"
    values = f"{head}{inside}other: {{}}\n"
    report = lint([("values.yaml", values), ("hpa.yaml", HPA)])
    found = [(str(each.where), each.check.id) for each in report.findings]
    assert ("values.yaml:9", "rate-of-gauge") in found
    assert (report.values, report.rules) == (1, 1)


FLUX = """\
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: p, namespace: monitoring}
spec:
  chart: {spec: {chart: kube-prometheus-stack}}
  values:
"""
ARGO = """\
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: op}
spec:
  source: {chart: gpu-operator, helm: {valuesObject: {driver: {enabled: false}}}}
"""


def test_values_inside_a_release_are_read_by_the_charts_name() -> None:
    inside = "".join(f"    {line}\n" for line in ALERTS.replace("0.9", "90").splitlines())
    report = lint([("flux.yaml", FLUX + inside), ("argo.yaml", ARGO), ("pod.yaml", MIG)])
    assert [(str(each.where), each.check.id) for each in report.findings] == [
        ("flux.yaml:13", "wrong-unit"),
        ("flux.yaml:13", "series-not-exported"),
        ("pod.yaml:4", "no-mig-resources"),
    ]
    assert (report.values, report.passed_over) == (2, ())


def test_an_interval_counts_for_the_series_that_are_scraped_so() -> None:
    trigger = """\
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: w}
spec:
  scaleTargetRef: {name: w}
  minReplicaCount: 1
  triggers:
  - {type: prometheus, metadata: {query: "sum(rate(SERIES[1m]))", threshold: "5"}}
"""
    energy = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
    slow = "dcgmExporter: {serviceMonitor: {interval: 60s}}\n"
    jobs = "[{job_name: gpu-metrics, scrape_interval: 60s}, {job_name: web, scrape_interval: 5m}]"
    stack = f"prometheus: {{prometheusSpec: {{additionalScrapeConfigs: {jobs}}}}}\n"
    for values in (slow, stack):
        for series, expected in (
            (energy, ["short-rate-window"]),
            ("vllm:generation_tokens_total", []),
        ):
            text = trigger.replace("SERIES", series)
            found = lint([("v.yaml", values), ("so.yaml", text)]).findings
            assert [each.check.id for each in found] == expected


def test_honored_labels_of_a_chart_count() -> None:
    rules = """\
- seriesQuery: DCGM_FI_DEV_GPU_UTIL{pod!=""}
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""
    hpa = HPA.replace("running", "DCGM_FI_DEV_GPU_UTIL")

    def said(values: str) -> set[str]:
        files = [("r.yaml", rules), ("hpa.yaml", hpa), ("v.yaml", values)]
        return {each.check.id for each in lint(files).findings}

    monitor = "dcgmExporter: {serviceMonitor: {enabled: true, honorLabels: %s}}\n"
    assert "exporter-pod" in said(monitor % "false")
    assert "exporter-pod" not in said(monitor % "true")
