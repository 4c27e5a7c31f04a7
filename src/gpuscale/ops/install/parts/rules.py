"""The rules: which series the metrics API serves as what, and which means are recorded.

Source of those of metrics.k8s.io: kubelet's /metrics/cadvisor (google/cadvisor metrics/prometheus.go), where
`id="/"` is the whole node.
"""

from gpuscale.base.documents.documents import dump_documents
from gpuscale.ops.install.common import METRICS_API, Object
from gpuscale.ops.install.parts.workloads import config_map
from gpuscale.ops.install.prometheus_auth import PrometheusKind
from gpuscale.ops.install.scale.manifest import MEAN, quantity
from gpuscale.ops.install.scale.metrics import CombinedMetric
from gpuscale.ops.install.values import Values
from gpuscale.signals import GPU_SIGNALS, Signal, pod_labels, value_by

PART = METRICS_API
RULE_FILE = "rules.yaml"
PROMETHEUS_RULE_FILE = "prometheus-rules.yaml"
RECORDING_FILE = "recording.yaml"
ALERTS_FILE = "alerts.yaml"
TRIGGER_FILE = "triggers.yaml"
_HASH = "[bcdfghjklmnpqrstvwxz2456789]"
"""The letters of generated names. Source: k8s.io/apimachinery pkg/util/rand (alphanums)."""
_OF_DEPLOYMENT = f"(.+)-{_HASH}{{1,10}}-{_HASH}{{5}}"
_OF_STATEFUL_SET = "(.+)-[0-9]+"
UTILIZATION = "DCGM_FI_DEV_GPU_UTIL"
_WORKLOADS = {"deployment": _OF_DEPLOYMENT, "statefulset": _OF_STATEFUL_SET}


RESOURCE_RULE_FILE = "resource-rules.yaml"
_USED_BY = '<<.LabelMatchers>>,container!="",container!="POD",pod!=""'
"""Without the sums over a pod and the container that holds its network."""
_OF_NODE = '<<.LabelMatchers>>,id="/"'
_WINDOW = "3m"
"""Two samples are in it where the kubelets are scraped every minute, and one scrape fails."""
_NODE_LABEL = {"operator": "node", "own": "node", "plain": "instance", "azure": "instance"}
"""What holds a node's name: the operator's kubelet Service gives `node`, discovery of nodes
`instance`, and so does Azure's scrape of cAdvisor."""


def rule_file_objects(values: Values) -> list[Object]:
    """Return the ConfigMap with the rule files of the metrics API and the scaler; none where neither is."""
    api = values.spec.metrics_api
    if not api.enabled and not values.spec.asks_scaler:
        return []
    text = api.rules or dump_documents([_rules(values)])
    files = {RULE_FILE: text}
    if api.resource:
        files[RESOURCE_RULE_FILE] = dump_documents([resource_rules(values.spec.prometheus.kind)])
    if values.spec.has_streams and values.spec.recording_rules:
        # The agents' labels arrive as they are.
        files[RECORDING_FILE] = dump_documents([{"groups": recording_groups(honor_labels=True)}])
    if api.prometheus_rules and values.spec.has_streams:
        files[PROMETHEUS_RULE_FILE] = api.prometheus_rules
    if values.spec.serves_triggers:
        files[TRIGGER_FILE] = dump_documents([{"triggers": triggers(values)}])
    return [config_map(values, PART, files)]


def triggers(values: Values) -> list[Object]:
    """Return the triggers that the metrics API serves to HPAs, as entries of its file."""
    return [
        {"namespace": scale.workload.namespace, **keys}
        for scale in values.spec.scale
        if scale.has_served_triggers
        for keys in scale.trigger_keys
    ]


def _rules(values: Values) -> Object:
    honor_labels = values.spec.has_streams or values.spec.prometheus.honor_labels
    used = dict.fromkeys(each for scale in values.spec.scale for each in scale.signals)
    more = [signal_rule(each) for each in used if has_rule(each)]
    combined = (each for scale in values.spec.scale for each in scale.combined_metrics)
    more += [combined_rule(each) for each in dict.fromkeys(combined)]
    if values.spec.has_streams and not values.spec.recording_rules:
        return {"rules": [*_pod_rules(honor_labels=honor_labels), *more]}
    found = adapter_rules(honor_labels=honor_labels)
    return {"rules": [*found["rules"], *more]}


def adapter_rules(*, honor_labels: bool) -> Object:
    """Return the rules for every signal of GPUs, as prometheus-adapter reads them."""
    means = [_mean_rule(each) for each in _WORKLOADS]
    return {"rules": [*_pod_rules(honor_labels=honor_labels), *means, _service_rule()]}


def _pod_rules(*, honor_labels: bool) -> list[Object]:
    return [_pod_rule(signal, honor_labels=honor_labels) for signal in GPU_SIGNALS.values()]


def _pod_rule(signal: Signal, *, honor_labels: bool) -> Object:
    namespace, pod = pod_labels(signal, honor_labels=honor_labels)
    query = f"{signal.aggregate}(<<.Series>>{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)"
    if signal.divisor is not None:
        query += f" / sum({signal.divisor}{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)"
    rule: Object = {
        "seriesQuery": f'{signal.series}{{{namespace}!="",{pod}!=""}}',
        "resources": {
            "overrides": {namespace: {"resource": "namespace"}, pod: {"resource": "pod"}}
        },
        "metricsQuery": query,
    }
    if signal.metric != signal.series:
        rule["name"] = {"matches": f"^{signal.series}$", "as": signal.metric}
    return rule


def has_rule(signal: Signal) -> bool:
    """Return whether a rule of its own serves a signal: of GPUs all are served, and queries by triggers."""
    return not signal.is_of_gpus and signal.kind != "external"


def signal_rule(signal: Signal) -> Object:
    """Return the rule of a signal of a model server or a gateway, in all spellings of its series."""
    ending = "_bucket" if signal.how == "p95" else ""
    names = [f"{each}{ending}" for each in signal.spellings]
    label = signal.label or "pod"
    selected = [each for each in (signal.matchers, 'namespace!=""', f'{label}!=""') if each]
    matchers = ",".join(selected)
    either = "|".join(names)
    query = f'{{__name__=~"{either}",{matchers}}}' if signal.older else f"{either}{{{matchers}}}"
    resource: Object = {"resource": "pod"}
    if signal.described is not None:
        described = signal.described
        resource = {"group": described.group, "resource": described.resource}
    return {
        "seriesQuery": query,
        "resources": {"overrides": {"namespace": {"resource": "namespace"}, label: resource}},
        "name": {"matches": f"^({either})$", "as": signal.metric},
        "metricsQuery": value_by(signal, "<<.LabelMatchers>>", "<<.GroupBy>>"),
    }


def combined_rule(metric: CombinedMetric) -> Object:
    """Return the rule of several limits as one metric; it is found by the series of the first of them."""
    first = signal_rule(metric.parts[0].source)
    return {
        "seriesQuery": first["seriesQuery"],
        "resources": first["resources"],
        "name": {"as": metric.combined},
        "parts": [
            {
                "name": each.signal,
                "query": value_by(each.source, "<<.LabelMatchers>>", "<<.GroupBy>>"),
                "threshold": quantity(each.threshold),
            }
            for each in metric.parts
        ],
    }


def _mean_rule(kind: str) -> Object:
    """Return the rule that serves the recorded mean as a metric of a workload object."""
    resource = {"group": "apps", "resource": kind}
    return {
        "seriesQuery": f'{MEAN}{{namespace!="",{kind}!=""}}',
        "resources": {"overrides": {"namespace": {"resource": "namespace"}, kind: resource}},
        "metricsQuery": "avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
    }


def _service_rule() -> Object:
    return {
        "seriesQuery": f'{MEAN}{{namespace!="",service!=""}}',
        "resources": {
            "overrides": {
                "namespace": {"resource": "namespace"},
                "service": {"resource": "service"},
            }
        },
        "metricsQuery": "avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
    }


def recording_groups(*, honor_labels: bool) -> list[Object]:
    """Return the rule groups that record means: of each workload's GPUs, and of those behind a Service."""
    namespace, pod = pod_labels(GPU_SIGNALS["gpu-utilization"], honor_labels=honor_labels)
    per_workload = [
        _mean_by_workload(namespace, pod, kind, pattern) for kind, pattern in _WORKLOADS.items()
    ]
    of_service = f'avg by (namespace, service) ({UTILIZATION}{{service!="",{pod}!=""}})'
    # One rule, because promtool takes two of one name for a mistake; no two parts give the same labels.
    rule = {"record": MEAN, "expr": " or ".join((*per_workload, of_service))}
    return [{"name": "gpuscale-means", "interval": "15s", "rules": [rule]}]


def _mean_by_workload(namespace: str, pod: str, kind: str, pattern: str) -> str:
    selected = f'{UTILIZATION}{{{pod}=~"{pattern}"}}'
    named = f'label_replace({selected}, "{kind}", "$1", "{pod}", "{pattern}")'
    if namespace != "namespace":
        named = f'label_replace({named}, "namespace", "$1", "{namespace}", "(.+)")'
    return f"avg by (namespace, {kind}) ({named})"


# metrics.k8s.io


def resource_rules(kind: PrometheusKind) -> Object:
    """Return the rules for a kind of Prometheus, as prometheus-adapter reads them."""
    cpu, memory = "container_cpu_usage_seconds_total", "container_memory_working_set_bytes"
    labels = {"namespace": "namespace", "pod": "pod", _NODE_LABEL[kind]: "node"}
    overrides = {label: {"resource": resource} for label, resource in labels.items()}
    return {
        "resourceRules": {
            "cpu": {
                "containerQuery": _sum(f"rate({cpu}{{{_USED_BY}}}[{_WINDOW}])"),
                "nodeQuery": _sum(f"rate({cpu}{{{_OF_NODE}}}[{_WINDOW}])"),
                "resources": {"overrides": overrides},
                "containerLabel": "container",
            },
            "memory": {
                "containerQuery": _sum(f"{memory}{{{_USED_BY}}}"),
                "nodeQuery": _sum(f"{memory}{{{_OF_NODE}}}"),
                "resources": {"overrides": overrides},
                "containerLabel": "container",
            },
            "window": _WINDOW,
        }
    }


def _sum(query: str) -> str:
    return f"sum({query}) by (<<.GroupBy>>)"
