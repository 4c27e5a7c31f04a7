"""Files with so many rules, autoscalers and triggers, as `gpuscale lint` gets them."""

UTIL = "DCGM_FI_DEV_GPU_UTIL"
QUERY = "avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)"
TEMPLATE = "{template: <<.Resource>>}"


def names(kind, size):
    return [f"{kind}-{index:04}" for index in range(size)]


def metric_of(name):
    return name.replace("-", "_")


def hpa(name, metric, kind="Pods", least=1):
    target = "{type: AverageValue, averageValue: 70}"
    source = {"Pods": "pods", "External": "external"}[kind]
    return f"""\
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {{name: {name}, namespace: ml}}
spec:
  scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: {name}}}
  minReplicas: {least}
  maxReplicas: 10
  metrics:
  - {{type: {kind}, {source}: {{metric: {{name: {metric}}}, target: {target}}}}}
"""


def deployment(name):
    limits = "{limits: {nvidia.com/gpu: 2}}"
    return f"""\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}, namespace: ml}}
spec:
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec: {{containers: [{{name: c, image: vllm, resources: {limits}}}]}}
"""


def rule(name, series=UTIL, query=QUERY):
    named = f"{{as: {metric_of(name)}}}"
    return f"- {{seriesQuery: {series}, resources: {TEMPLATE}, name: {named}, metricsQuery: '{query}'}}\n"


def scaled(name):
    return f"""\
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {{name: {name}, namespace: ml}}
spec:
  scaleTargetRef: {{name: {name}}}
  triggers:
  - type: prometheus
    authenticationRef: {{name: {name}}}
    metadata: {{serverAddress: 'http://p:9090', query: 'avg({UTIL})', threshold: '70', ca: x}}
"""


def authentication(name):
    return f"""\
apiVersion: keda.sh/v1alpha1
kind: TriggerAuthentication
metadata: {{name: {name}, namespace: ml}}
spec: {{secretTargetRef: [{{parameter: ca, name: s, key: k}}]}}
"""


def trigger(name):
    workload = f"workload: deployment/{name}, metric: {UTIL}, target: 200"
    return f"- {{namespace: ml, metricName: {metric_of(name)}, {workload}}}\n"


def config_map(name):
    inside = "".join(f"    {line}\n" for line in rule(name).splitlines())
    return f"""\
apiVersion: v1
kind: ConfigMap
metadata: {{name: {name}}}
data:
  rules.yaml: |
{inside}"""


def node_pool(name):
    types = "{key: node.kubernetes.io/instance-type, operator: In, values: [g6.xlarge]}"
    return f"""\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {{name: {name}}}
spec:
  template:
    spec:
      nodeClassRef: {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: gpu}}
      taints: [{{key: team, effect: NoSchedule}}]
      requirements: [{types}]
"""


def pinned(name):
    selector = f"nodeSelector: {{karpenter.sh/nodepool: {name}}}, containers:"
    return deployment(name).replace("containers:", selector)


def whole(name, texts):
    return name, "---\n".join(texts)


def pairs(size, series=UTIL):
    """Autoscalers, each with its Deployment and a rule for its metric."""
    models = names("model", size)
    return [
        whole("hpas.yaml", (hpa(name, metric_of(name)) for name in models)),
        whole("deployments.yaml", map(deployment, models)),
        ("rules.yaml", "".join(rule(name, series) for name in models)),
    ]


def in_files(size):
    """The same, each in a file of its own."""
    models = names("model", size)
    return [
        each
        for name in models
        for each in (
            (f"{name}-hpa.yaml", hpa(name, metric_of(name))),
            (f"{name}-deployment.yaml", deployment(name)),
            (f"{name}-rules.yaml", rule(name, query=QUERY.replace("avg", "sum"))),
        )
    ]


def waking(size):
    """Autoscalers from zero on external metrics, each with its rule."""
    models = names("model", size)
    external = "".join(rule(name) for name in models)
    return [
        whole("hpas.yaml", (hpa(name, metric_of(name), "External", 0) for name in models)),
        ("rules.yaml", f"externalRules:\n{external}"),
    ]


def triggered(size):
    """Autoscalers on triggers, each with its own."""
    models = names("model", size)
    return [
        whole("hpas.yaml", (hpa(name, metric_of(name), "External") for name in models)),
        ("triggers.yaml", "triggers:\n" + "".join(map(trigger, models))),
    ]


def unknown(size):
    """Autoscalers on a metric that none of as many rules gives."""
    models = names("model", size)
    return [
        whole("hpas.yaml", (hpa(name, "requests") for name in models)),
        ("rules.yaml", "".join(map(rule, models))),
    ]


def with_keda(size):
    models = names("model", size)
    return [
        whole("scaled.yaml", map(scaled, models)),
        whole("authentications.yaml", map(authentication, models)),
    ]


def in_config_maps(size):
    models = names("model", size)
    return [
        whole("hpas.yaml", (hpa(name, metric_of(name)) for name in models)),
        whole("maps.yaml", map(config_map, models)),
    ]


def on_pools(size):
    """Workloads, each with a NodePool of its own that it does not tolerate, and an autoscaler."""
    models = names("model", size)
    return [
        whole("pools.yaml", map(node_pool, models)),
        whole("deployments.yaml", (pinned(name) for name in models)),
        whole("hpas.yaml", (hpa(name, metric_of(name)) for name in models)),
    ]


def beside_pools(size):
    """Workloads that may go to as many NodePools, and that all of these keep away by a taint."""
    models = names("model", size)
    return [whole("pools.yaml", map(node_pool, models)), whole("d.yaml", map(deployment, models))]


GROWING = [
    ("memory-at-start", lambda size: pairs(size, "DCGM_FI_DEV_FB_USED")),
    ("sum-of-percentages", in_files),
    ("cannot-wake", waking),
    ("unreachable-target", triggered),
    ("unknown-metric", unknown),
    ("ca-ignored", with_keda),
    ("exporter-pod", in_config_maps),
    ("untolerated-pool", on_pools),
    ("no-tolerated-pool", beside_pools),
]
"""A check that finds something, and from a number to names and texts of files."""
