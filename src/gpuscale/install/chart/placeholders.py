"""Fields of the values file that are passed through: rendered as marks, then turned into expressions.

A mark is a text or number that occurs nowhere else. Where rendering makes something of a field (a duration's
text, a port out of an address), the mark is made into the same, and that is what is looked for.
"""

import base64
import json
import re
from typing import Any

from gpuscale.core.golang.durations import format_duration
from gpuscale.install.certificates import ServingCertificate
from gpuscale.install.values import (
    Agent,
    Alerts,
    Dashboards,
    DevicePlugin,
    Image,
    Metadata,
    MetricsApi,
    Prometheus,
    Samples,
    Scale,
    Taint,
    Values,
    ValuesSpec,
    Workload,
)

V = "$.Values"
_TEXT = "xq{}qx"
_URL_PORT = 45_781
_ALERTMANAGER_PORT = 45_783
_STORE_SIZE, _VOLUME_SIZE = "45791Mi", "91582Mi"
_COLLECT_MS, _SCRAPE_MS = 7_001_013, 8_002_017
_IDLE_MS, _NODE_START_MS = 9_003_019, 10_004_023
_URL = f"http://xqurlqx:{_URL_PORT}"
_ALERTMANAGER = f"http://xqalertmanagerqx:{_ALERTMANAGER_PORT}"


def _port_of(url: str) -> str:
    return (
        f'regexFind "[0-9]+$" (urlParse {url}).host | default '
        f'(ternary 443 80 (hasPrefix "https:" {url})) | int'
    )


_CERTIFICATE = ServingCertificate("xqcaqx", "xqcertificateqx", "xqkeyqx")


def _mark(name: str) -> str:
    return _TEXT.format(name)


TEXTS: dict[str, str] = {
    _mark("name"): f"{V}.metadata.name",
    _mark("namespace"): "$.Release.Namespace",
    _mark("repository"): f"{V}.spec.image.repository",
    _mark("tag"): f"{V}.spec.image.tag",
    _mark("pullpolicy"): f"{V}.spec.image.pullPolicy",
    _mark("pullsecret"): f"{V}.spec.image.pullSecret",
    _mark("runtimeclass"): f"{V}.spec.agent.runtimeClass",
    _mark("podresources"): f"{V}.spec.agent.podResourcesPath",
    format_duration(_COLLECT_MS): f"{V}.spec.agent.collectInterval",
    format_duration(_SCRAPE_MS): f"{V}.spec.prometheus.scrapeInterval",
    _mark("issuer"): f"{V}.spec.metricsApi.issuer",
    _mark("rules"): f"{V}.spec.metricsApi.rules",
    _mark("teamrules"): f"{V}.spec.metricsApi.rulesConfigMaps",
    _mark("prometheusrules"): f"{V}.spec.metricsApi.prometheusRules",
    _mark("exporterpods"): f"{V}.spec.metricsApi.exporterPods",
    _STORE_SIZE: f"{V}.spec.metricsApi.storeSize",
    _VOLUME_SIZE: f'printf "%d%s" (mul 2 (regexFind "^[0-9]+" {V}.spec.metricsApi.storeSize)) '
    f'(regexFind "[MG]i$" {V}.spec.metricsApi.storeSize)',
    _ALERTMANAGER: f'join "," {V}.spec.metricsApi.alertmanagers',
    _mark("alertmanagerca"): f"{V}.spec.metricsApi.alertmanagerCaSecret",
    _mark("alertmanagertoken"): f"{V}.spec.metricsApi.alertmanagerTokenSecret",
    _mark("remotewritesecret"): f"{V}.spec.metricsApi.remoteWriteSecret",
    "xqexternalqx": f"{V}.spec.metricsApi.externalName",
    _URL: f"{V}.spec.prometheus.url",
    _mark("release"): f"{V}.spec.prometheus.release",
    _mark("prometheusimage"): f"{V}.spec.prometheus.image",
    _mark("pluginimage"): f"{V}.spec.devicePlugin.image",
    format_duration(_IDLE_MS): f"{V}.spec.alerts.idle",
    format_duration(_NODE_START_MS): f"{V}.spec.alerts.nodeStart",
    _mark("docs"): f"{V}.spec.alerts.docsUrl",
    _mark("dashboards"): f"{V}.spec.dashboards.namespace",
    _mark("dashboardlabel"): f"{V}.spec.dashboards.label",
    _mark("folder"): f"{V}.spec.dashboards.folder",
    _mark("currency"): f"{V}.spec.dashboards.currency",
    "345679": f"{V}.spec.dashboards.gpuHourPrice",
    _mark("samples"): f"{V}.spec.samples.namespace",
    _mark("vision"): f"{V}.spec.samples.visionImage",
    _mark("taintkey"): f"{V}.spec.taint.key",
    _mark("taintvalue"): f"{V}.spec.taint.value",
    _mark("tainteffect"): f"{V}.spec.taint.effect",
    "xq[.]workloadqx": '$scale.workload.name | replace "." "[.]"',
    "xq.workloadqx": "$scale.workload.name",
    _mark("workloadnamespace"): "$scale.workload.namespace",
    "345678": "$scale.target",
    base64.b64encode(b"xqcaqx").decode(): "$ca",
    base64.b64encode(b"xqcertificateqx").decode(): "$certificate",
    base64.b64encode(b"xqkeyqx").decode(): "$key",
}
"""Marks in texts, longest names first where one could be part of another."""
NUMBERS: dict[int, str] = {
    45_001: f"{V}.spec.metricsApi.replicas | int",
    45_002: f"{V}.spec.metricsApi.port | int",
    45_003: f"{V}.spec.samples.mnistJobs | int",
    45_004: f"{V}.spec.devicePlugin.replicas | int",
    45_005: "$scale.minReplicas | int",
    45_006: "$scale.maxReplicas | int",
    45_007: "$scale.scaleDownStabilizationSeconds | int",
    45_008: f"{V}.spec.metricsApi.remoteWritePort | int",
    _URL_PORT: _port_of(f"{V}.spec.prometheus.url"),
    _ALERTMANAGER_PORT: _port_of(f"(first {V}.spec.metricsApi.alertmanagers)"),
}
_FOUND = re.compile("|".join(re.escape(mark) for mark in TEXTS))
_FOUND_NUMBER = re.compile(r"\b450\d\d\b")


def marked_values() -> Values:
    """Return values with a mark in every field that is passed through, and everything switched on.

    They are not checked: no mark is a port or a label's value.
    """
    workload = Workload.model_construct(
        kind="Deployment", name="xq.workloadqx", namespace=_mark("workloadnamespace")
    )
    scale = Scale.model_construct(
        workload=workload,
        target=345_678.0,
        min_replicas=45_005,
        max_replicas=45_006,
        scale_down_stabilization_seconds=45_007,
    )
    spec = ValuesSpec.model_construct(
        namespace=_mark("namespace"),
        image=Image.model_construct(
            repository=_mark("repository"), tag=_mark("tag"), pull_policy=_mark("pullpolicy")
        ),
        scale=(scale,),
        taint=Taint.model_construct(
            key=_mark("taintkey"), value=_mark("taintvalue"), effect=_mark("tainteffect")
        ),
        agent=Agent.model_construct(
            collect_interval=_COLLECT_MS, pod_resources_path=_mark("podresources")
        ),
        metrics_api=MetricsApi.model_construct(
            replicas=45_001,
            port=45_002,
            store_size=_STORE_SIZE,
            remote_write_secret=_mark("remotewritesecret"),
            remote_write_port=45_008,
        ),
        prometheus=Prometheus.model_construct(
            url=_URL, scrape_interval=_SCRAPE_MS, image=_mark("prometheusimage")
        ),
        device_plugin=DevicePlugin.model_construct(
            enabled=True, image=_mark("pluginimage"), replicas=45_004
        ),
        alerts=Alerts.model_construct(
            idle=_IDLE_MS, node_start=_NODE_START_MS, docs_url=_mark("docs")
        ),
        dashboards=Dashboards.model_construct(
            label=_mark("dashboardlabel"),
            folder=_mark("folder"),
            currency=_mark("currency"),
            gpu_hour_price=345_679.0,
        ),
        samples=Samples.model_construct(namespace=_mark("samples")),
    )
    return Values.model_construct(metadata=Metadata.model_construct(name=_mark("name")), spec=spec)


def marked_certificate() -> ServingCertificate:
    """Return a certificate that is marks."""
    return _CERTIFICATE


ALERTMANAGERS = (_ALERTMANAGER,)


def mark(name: str) -> str:
    """Return the mark of an optional field."""
    return _mark(name)


def scalar(value: Any, indent: int) -> str:  # noqa: ANN401 - any YAML scalar
    """Return a scalar as YAML, its marks as template expressions; texts of several lines as a block."""
    if isinstance(value, int) and not isinstance(value, bool) and value in NUMBERS:
        return f"{{{{ {NUMBERS[value]} }}}}"
    if not isinstance(value, str):
        return json.dumps(value)
    if value in TEXTS:
        return f"{{{{ {TEXTS[value]} | toString | toJson }}}}"
    if "\n" in value:
        return _block(value, indent)
    return expressed(json.dumps(value, ensure_ascii=False))


def _block(text: str, indent: int) -> str:
    lines = expressed(text).splitlines()
    return "\n".join(["|", *(f"{' ' * indent}{line}" if line else "" for line in lines)])


def expressed(text: str) -> str:
    """Return a text whose marks are expressions and whose braces mean nothing to a template."""
    safe = text.replace("{{", '{{ "{{" }}')
    with_texts = _FOUND.sub(lambda found: f"{{{{ {TEXTS[found[0]]} }}}}", safe)
    return _FOUND_NUMBER.sub(lambda found: f"{{{{ {NUMBERS[int(found[0])]} }}}}", with_texts)
