"""Values files of other projects' Helm charts: a table of charts, and the objects that each makes.

An object is written as the chart's template has it, as far as checks look at it. A part of the values in
it is a `Part`, so that a finding names the place in the values file. Defaults are those of the chart.

Source: NVIDIA dcgm-exporter 4.8.2 deployment/, gpu-operator 26.3 deployments/gpu-operator/, k8s-device-plugin
    0.20 deployments/helm/nvidia-device-plugin/; prometheus-community kube-prometheus-stack 88.5;
    vllm-project production-stack 0.1.12 helm/. Values of prometheus-adapter are rules (`rule_inputs`), those
    of cluster-autoscaler are node objects (`node_inputs`).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import PurePath

from gpuscale.base.documents.documents import Path
from gpuscale.ops.lint.operators.made import (
    DEPLOYMENT,
    HPA,
    SCALED_OBJECT,
    Made,
    Making,
    default,
    made,
    target,
)
from gpuscale.ops.lint.parts import Part
from gpuscale.signals import list_of_image

_MONITORING = "monitoring.coreos.com/v1"
_DEFAULT_LIST = "/etc/dcgm-exporter/default-counters.csv"
_COLLECTORS = "DCGM_EXPORTER_COLLECTORS"
_FOR_GPUS = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
RELEASE = "vllm"
"""The name of the Helm release, which no values file has; this one is of the production-stack's tutorials."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A Helm chart by its values."""

    name: str
    own: tuple[Path, ...]
    """Keys that its values alone have: one of them is enough to know it by."""
    objects: Callable[[Part], Making]
    usual: frozenset[str] = frozenset()
    """Its other keys, as many charts have them: a file of these alone needs the chart's name in its path."""

    def has_made(self, values: Part, named: str) -> bool:
        """Return whether values are of this chart, whose name is what names them or not."""
        if self.name == named:
            return True
        given = values.fields().keys()
        if any(path[-1] in values.fields(*path[:-1]) for path in self.own):
            return True
        known = self.usual | {str(path[0]) for path in self.own}
        is_named = self.name in values.document.source
        return is_named and bool(given) and given <= known


def values_within(whole: Part) -> Iterator[tuple[Part, str]]:
    """Yield the values that an object of Flux or Argo CD gives a chart, with the chart's name."""
    match whole.text("apiVersion").rpartition("/")[0], whole.text("kind"):
        case "helm.toolkit.fluxcd.io", "HelmRelease":
            yield whole.at("spec", "values"), whole.text("spec", "chart", "spec", "chart")
        case "argoproj.io", "Application":
            for each in (whole.at("spec", "source"), *whole.items("spec", "sources")):
                yield each.at("helm", "valuesObject"), each.text("chart")


def objects_of_values(values: Part, named: str = "") -> list[Made] | None:
    """Return the objects that a chart of the table makes of values; None for values of no such chart.

    Values of a chart around it have those of a chart under its name.

    Args:
        values: all that is given.
        named: the chart, where that is known.
    """
    if "kind" in values.fields() or "apiVersion" in values.fields():
        return None
    objects: list[Made] = []
    found = False
    for chart in CHARTS:
        below = values.at(chart.name)
        for part in (values, below) if isinstance(below.data, dict) else (values,):
            if part is below or chart.has_made(part, named):
                found = True
                objects += chart.objects(part)
    return objects if found else None


def _daemon_set(
    part: Part, name: str, image: str, tolerations: object, env: dict[str, Part] | None = None
) -> Made:
    variables = [{"name": key, "value": each} for key, each in (env or {}).items() if each.data]
    containers = [{"name": name, "image": image, "env": variables}]
    pod = {
        "containers": containers,
        "tolerations": tolerations,
        "nodeSelector": part.at("nodeSelector"),
    }
    return made(part, ("apps/v1", "DaemonSet"), name, {"template": {"spec": pod}})


def _monitor(settings: Part, name: str, *, usual: bool, interval: str) -> Making:
    if default(settings.at("enabled"), usual).data is True:
        endpoint = {
            "honorLabels": settings.at("honorLabels"),
            "interval": default(settings.at("interval"), interval),
        }
        yield made(settings, (_MONITORING, "ServiceMonitor"), name, {"endpoints": [endpoint]})


def _config_map(part: Part, name: str, data: dict[str, object] | Part) -> Made:
    return made(part, ("v1", "ConfigMap"), name, None, data)


# GPU nodes


def _dcgm_exporter(values: Part) -> Making:
    name = "dcgm-exporter"
    yield _daemon_set(values, name, name, values.at("tolerations"))
    yield from _monitor(values.at("serviceMonitor"), name, usual=True, interval="15s")
    words = values.texts("arguments")
    options = [at for at, word in enumerate(words[:-1]) if word in ("-f", "--collectors")]
    given = words[options[-1] + 1] if options else _variable(values.at("extraEnv"), _COLLECTORS)
    own = values.at("customMetrics") if given in ("", _DEFAULT_LIST) else None
    yield from _rows(values, own, given)


def _rows(part: Part, own: Part | None, given: str) -> Making:
    """Yield the ConfigMap with an exporter's rows, its own or its image's; none where they are elsewhere."""
    rows: object = (
        own if own is not None and own.data else list_of_image(PurePath(given or _DEFAULT_LIST))
    )
    if rows is not None:
        yield _config_map(part, "exporter-metrics", {"rows.csv": rows})


def _variable(env: Part, name: str) -> str:
    return next((each.text("value") for each in env.items() if each.text("name") == name), "")


def _gpu_operator(values: Part) -> Making:
    tolerations = default(values.at("daemonsets", "tolerations"), _FOR_GPUS)
    exporter, plugin = values.at("dcgmExporter"), values.at("devicePlugin")
    strategy = default(values.at("mig", "strategy"), "single")
    for part, name, env in (
        (exporter, "dcgm-exporter", {}),
        (plugin, "device-plugin", _plugin_env(strategy, plugin.at("config", "name"))),
    ):
        if part.at("enabled").data is not False:
            yield _daemon_set(part, f"nvidia-{name}", name, tolerations, env)
    if exporter.at("enabled").data is not False:
        yield from _monitor(
            exporter.at("serviceMonitor"), "nvidia-dcgm-exporter", usual=True, interval="15s"
        )
        config = exporter.at("config")
        is_made = config.at("create").data is True
        if is_made or not config.text("name"):
            own = config.at("data") if is_made else None
            yield from _rows(exporter, own, _variable(exporter.at("env"), _COLLECTORS))
    if plugin.at("enabled").data is not False and plugin.at("config", "create").data is True:
        yield _config_map(plugin, plugin.text("config", "name"), plugin.at("config", "data"))


def _plugin_env(strategy: Part, config: Part) -> dict[str, Part]:
    return {"MIG_STRATEGY": strategy, "CONFIG_FILE": config}


def _device_plugin(values: Part) -> Making:
    name = "nvidia-device-plugin"
    if values.at("devicePlugin", "enabled").data is not False:
        config = values.at("config")
        is_given = bool(config.text("name") or config.fields("map"))
        env = _plugin_env(
            default(values.at("migStrategy"), "none"),
            replace(config, data="/config.yaml" if is_given else None),
        )
        yield _daemon_set(values, name, name, default(values.at("tolerations"), _FOR_GPUS), env)
    if values.fields("config", "map"):
        yield _config_map(values.at("config"), f"{name}-configs", values.at("config", "map"))


# Prometheus


def _prometheus_stack(values: Part) -> Making:
    rules = values.at("additionalPrometheusRulesMap")
    listed = [rules.at(key) for key in rules.fields()]
    for each in (*listed, *values.items("additionalPrometheusRules")):
        spec = {"groups": each.at("groups")}
        yield made(each, (_MONITORING, "PrometheusRule"), each.text("name"), spec)
    prometheus = values.at("prometheus")
    usual = prometheus.at("prometheusSpec", "scrapeInterval").text() or "30s"
    # Others are scraped too, by monitors that are not in the values.
    yield made(prometheus, (_MONITORING, "ServiceMonitor"), "others", {"endpoints": [{}]})
    for each in prometheus.items("prometheusSpec", "additionalScrapeConfigs"):
        interval = default(each.at("scrape_interval"), usual)
        endpoint = {"honorLabels": each.at("honor_labels"), "interval": interval}
        name, ends = each.text("job_name"), {"podMetricsEndpoints": [endpoint]}
        yield made(each, (_MONITORING, "PodMonitor"), name, ends)
    for kind in ("ServiceMonitor", "PodMonitor"):
        for each in prometheus.items(f"additional{kind}s"):
            yield made(each, (_MONITORING, kind), each.text("name"), each)


# Model servers

_VLLM_FLAGS = {
    "maxModelLen": "--max-model-len",
    "tensorParallelSize": "--tensor-parallel-size",
    "maxNumSeqs": "--max-num-seqs",
    "gpuMemoryUtilization": "--gpu-memory-utilization",
}
_OF_A_SCALED_OBJECT = (
    *("minReplicaCount", "maxReplicaCount", "pollingInterval", "cooldownPeriod"),
    *("idleReplicaCount", "initialCooldownPeriod", "fallback", "advanced", "triggers"),
)
_ROUTER_RESOURCES = {
    "requests": {"cpu": "400m", "memory": "1000Mi"},
    "limits": {"memory": "1000Mi"},
}
_ROUTER_SCALES = {"minReplicas": 1, "maxReplicas": 3, "targetCPUUtilizationPercentage": 80}


def _production_stack(values: Part) -> Making:
    engines, router = values.at("servingEngineSpec"), values.at("routerSpec")
    if engines.at("enableEngine").data is not False:
        for model in engines.items("modelSpec"):
            if model.at("enabled").data is not False and model.data:
                yield from _engine(engines, model)
        yield from _monitor(
            engines.at("serviceMonitor"),
            f"{RELEASE}-engine-servicemonitor",
            usual=False,
            interval="30s",
        )
    if router.at("autoscaling", "enabled").data is True:
        yield from _router(router)


def _engine(engines: Part, model: Part) -> Making:
    if model.at("raySpec", "enabled").data is True:
        return  # A RayCluster, which nothing scales.
    name = f"{RELEASE}-{model.text('name')}-deployment-vllm"
    labels = {"model": model.at("name"), "helm-release-name": RELEASE}
    config, keda = model.at("vllmConfig"), model.at("keda")
    words = [f"{flag}={config.text(key)}" for key, flag in _VLLM_FLAGS.items() if config.text(key)]
    words += config.texts("extraArgs")
    is_scaled = keda.at("enabled").data is True
    tolerations = model.at("tolerations")
    if not tolerations.data:
        tolerations = engines.at("tolerations")
    elif model.text("tolerationsPolicy") != "override" and engines.at("tolerations").data:
        listed = [*engines.items("tolerations"), *model.items("tolerations")]
        tolerations = replace(tolerations, data=[each.data for each in listed])
    affinity: object = model.at("affinity")
    if not model.fields("affinity"):
        terms = model.at("nodeSelectorTerms")
        required = {"nodeSelectorTerms": terms} if terms.data else None
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    resources = model.at("resources") if model.fields("resources") else _resources(model)
    container = {
        "name": "vllm",
        "image": replace(
            model.at("repository"), data=f"{model.text('repository')}:{model.text('tag')}"
        ),
        "args": replace(config, data=words),
        "resources": resources,
    }
    pod = {"containers": [container], "tolerations": tolerations, "affinity": affinity}
    yield made(
        model,
        DEPLOYMENT,
        name,
        {
            "replicas": None if is_scaled else model.at("replicaCount"),
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    )
    if is_scaled:
        yield made(
            keda,
            SCALED_OBJECT,
            f"{RELEASE}-{model.text('name')}-scaledobject",
            {
                "scaleTargetRef": target(DEPLOYMENT, name),
                **{each: keda.at(each) for each in _OF_A_SCALED_OBJECT},
            },
        )


def _resources(model: Part) -> dict[str, object]:
    """Return requests and limits as the chart makes them of `requestGPU` and its kin."""
    gpus = model.at("requestGPU")
    of_gpus: dict[str, object] = {}
    if gpus.text() not in ("", "0"):
        of_gpus[model.text("requestGPUType") or "nvidia.com/gpu"] = gpus
    return {
        "requests": {
            "cpu": model.at("requestCPU"),
            "memory": model.at("requestMemory"),
            **of_gpus,
        },
        "limits": {"cpu": model.at("limitCPU"), "memory": model.at("limitMemory"), **of_gpus},
    }


def _router(router: Part) -> Making:
    name = f"{RELEASE}-deployment-router"
    labels = {"app": name}
    resources = router.at("resources")
    container = {
        "name": "router-container",
        "image": router.at("repository"),
        "resources": default(resources, _ROUTER_RESOURCES),
    }
    yield made(
        router,
        DEPLOYMENT,
        name,
        {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    )
    scaling = router.at("autoscaling")
    given = {key: default(scaling.at(key), usual) for key, usual in _ROUTER_SCALES.items()}
    utilization = {
        "type": "Utilization",
        "averageUtilization": given.pop("targetCPUUtilizationPercentage"),
    }
    yield made(
        scaling,
        HPA,
        f"{RELEASE}-router-hpa",
        {
            "scaleTargetRef": target(DEPLOYMENT, name),
            **given,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": utilization}}],
        },
    )


def _own(*dotted: str) -> tuple[Path, ...]:
    return tuple(tuple(each.split(".")) for each in dotted)


_USUAL = frozenset(
    {
        *("affinity", "extraEnv", "fullnameOverride", "image", "imagePullSecrets", "nameOverride"),
        *("namespaceOverride", "nodeSelector", "podAnnotations", "podLabels", "podSecurityContext"),
        *("priorityClassName", "resources", "runtimeClassName", "securityContext", "service"),
        *("serviceAccount", "serviceMonitor", "tolerations", "arguments", "rollingUpdate"),
    }
)
CHARTS = (
    Chart(
        "dcgm-exporter",
        _own(
            "customMetrics",
            "kubeletPath",
            "kubernetes.enablePodLabels",
            "kubernetes.enablePodUID",
            "kubernetesDRA",
            "tlsServerConfig.autoGenerated",
        ),
        _dcgm_exporter,
        _USUAL
        | {"extraConfigMapVolumes", "extraHostVolumes", "extraVolumeMounts", "hostNetwork"}
        | {"mapPodsMetrics"},
    ),
    Chart(
        "gpu-operator",
        _own(
            "dcgmExporter",
            "devicePlugin.config",
            "migManager",
            "sandboxDevicePlugin",
            "vgpuManager",
            "daemonsets.tolerations",
            "mig.strategy",
            "driver.rdma",
            "operator.defaultRuntime",
        ),
        _gpu_operator,
        frozenset({"driver", "toolkit", "devicePlugin", "gfd", "nfd", "dcgm", "operator", "cdi"}),
    ),
    Chart(
        "nvidia-device-plugin",
        _own("migStrategy", "compatWithCPUManager", "deviceListStrategy", "deviceIDStrategy"),
        _device_plugin,
        _USUAL | {"config", "gfd", "nfd", "devicePlugin", "mps"},
    ),
    Chart(
        "kube-prometheus-stack",
        _own(
            "additionalPrometheusRulesMap",
            "additionalPrometheusRules",
            "prometheus.prometheusSpec",
            "prometheusOperator",
            "kubeControllerManager",
        ),
        _prometheus_stack,
    ),
    Chart("vllm-stack", _own("servingEngineSpec.modelSpec"), _production_stack),
)
"""Charts whose values lint knows, each with what it makes of them."""
