"""The files of the Helm chart."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gpuscale import __version__
from gpuscale.core.documents.documents import dump_documents
from gpuscale.install.boards.catalogue import dashboard_objects
from gpuscale.install.chart import dimensions as d
from gpuscale.install.chart.fold import Case, Folder
from gpuscale.install.chart.placeholders import expressed, marked_certificate, scalar
from gpuscale.install.common import Object
from gpuscale.install.parts.agent import agent_objects
from gpuscale.install.parts.autoscaling import autoscaling_objects
from gpuscale.install.parts.device_plugin import device_plugin_objects
from gpuscale.install.parts.metrics_api import metrics_api_objects
from gpuscale.install.parts.metrics_api_pods import metrics_api_pods
from gpuscale.install.parts.network import prometheus_policies, server_policies
from gpuscale.install.parts.prometheus import prometheus_objects
from gpuscale.install.parts.rules import rule_file_objects
from gpuscale.install.parts.samples import sample_objects
from gpuscale.install.parts.scraping import scraping_objects
from gpuscale.install.values import Scale, Values, ValuesSpec, Workload

_HEAD = "{{- /* Made by `python -m gpuscale.install.chart`; change the renderer instead. */}}"
_SHARED = ("Secret", "APIService")
"""Kinds that show the same certificate, and so stand in one template."""
_CERTIFICATE = """\
{{- $name := printf "%s-metrics-api" $.Values.metadata.name }}
{{- $host := printf "%s.%s.svc" $name $.Release.Namespace }}
{{- $ca := "" }}{{- $certificate := "" }}{{- $key := "" }}
{{- $there := lookup "v1" "Secret" $.Release.Namespace (printf "%s-tls" $name) }}
{{- if $there }}
{{- $ca = index $there.data "ca.crt" }}
{{- $certificate = index $there.data "tls.crt" }}
{{- $key = index $there.data "tls.key" }}
{{- else }}
{{- $authority := genCA "gpuscale metrics API" 3650 }}
{{- $hosts := list $host (printf "%s.cluster.local" $host) "localhost" }}
{{- $pair := genSignedCert $host (list "127.0.0.1") $hosts 3650 $authority }}
{{- $ca = $authority.Cert | b64enc }}
{{- $certificate = $pair.Cert | b64enc }}
{{- $key = $pair.Key | b64enc }}
{{- end }}"""


@dataclass(frozen=True, slots=True)
class _Part:
    """A builder, the options that its objects depend on, and the name of its templates."""

    name: str
    build: Callable[[Values], list[Object]]
    options: tuple[d.Option, ...]
    is_per_scale: bool = False


_PARTS = (
    _Part(
        "node-agent",
        agent_objects,
        (
            d.AGENT,
            d.PROVIDER,
            d.ATTRIBUTION,
            d.ACCESS,
            d.STYLE,
            d.RUNTIME_CLASS,
            d.PULL_SECRET,
            d.PROMETHEUS,
            d.SOURCE,
        ),
    ),
    _Part(
        "device-plugin",
        device_plugin_objects,
        (d.PLUGIN, d.PROVIDER, d.RUNTIME_CLASS, d.SHARES, d.MIG),
    ),
    _Part(
        "prometheus",
        prometheus_objects,
        (d.AGENT, d.HONOR, d.API, d.EXTERNAL_NAME, d.CERTIFICATES, d.PROMETHEUS_IF_WANTED),
    ),
    _Part(
        "dashboards",
        dashboard_objects,
        (d.DASHBOARDS, d.DASHBOARD_NAMESPACE, d.HONOR, d.API, d.EXTERNAL_NAME),
    ),
    _Part(
        "monitoring",
        scraping_objects,
        (
            d.AGENT,
            d.HONOR,
            d.RELEASE,
            d.RECORDING,
            d.ALERTS,
            d.API,
            d.EXTERNAL_NAME,
            d.CERTIFICATES,
            d.PROMETHEUS_IF_WANTED,
        ),
    ),
    _Part(
        "rules",
        rule_file_objects,
        (d.API, d.RULES, d.HONOR, d.SOURCE, d.RESOURCE, d.PROMETHEUS, d.PROMETHEUS_RULES),
    ),
    _Part(
        "metrics-api",
        lambda values: metrics_api_objects(values, marked_certificate()),
        (
            d.API,
            d.EXTERNAL,
            d.RESOURCE,
            d.CERTIFICATES,
            d.ISSUER,
            d.EXTERNAL_NAME,
            d.SOURCE,
            d.SHARE_AGENTS,
            d.TEAM_RULES,
        ),
    ),
    _Part(
        "metrics-api-pods",
        metrics_api_pods,
        (
            d.API,
            d.RESOURCE,
            d.EXTERNAL_NAME,
            d.PROMETHEUS,
            d.PULL_SECRET,
            d.SOURCE,
            d.SHARE_AGENTS,
            d.SCRAPE_PODS,
            d.TEAM_RULES,
            d.ALERTING_FROM_RULES,
            d.EXPORTER_PODS,
        ),
    ),
    _Part(
        "network",
        server_policies,
        (
            d.NETWORK,
            d.AGENT,
            d.API,
            d.EXTERNAL_NAME,
            d.PROMETHEUS,
            d.SOURCE,
            d.SCRAPE_PODS,
            d.ALERTING,
        ),
    ),
    _Part("network-prometheus", prometheus_policies, (d.NETWORK, d.PROMETHEUS_IF_WANTED)),
    _Part("samples", sample_objects, (d.BERT, d.VISION, d.MNIST)),
    _Part(
        "autoscaler",
        autoscaling_objects,
        (
            d.AUTOSCALER,
            d.METRIC,
            d.HPA_VERSION,
            d.SIGNAL,
            d.WORKLOAD_KIND,
            d.HONOR,
            d.PROMETHEUS,
        ),
        is_per_scale=True,
    ),
)


def chart_files() -> dict[str, str]:
    """Return the files of the chart by their names; the namespace is Helm's to make."""
    files = {
        "Chart.yaml": dump_documents([_chart()]),
        "values.yaml": _VALUES_NOTE + dump_documents([_default_values()]),
        "values.schema.json": json.dumps(_schema(), indent=2, sort_keys=True) + "\n",
        "templates/NOTES.txt": _NOTES,
    }
    for part in _PARTS:
        files[f"templates/{part.name}.yaml"] = "\n".join([_HEAD, *_template(part)]) + "\n"
    return files


def _template(part: _Part) -> list[str]:
    documents = [line for lines in _documents(part) for line in lines]
    if part.is_per_scale:
        # Helm does not fill in defaults inside a list, so they are merged in here.
        merged = f"mergeOverwrite (fromJson `{json.dumps(_scale_defaults())}`) $entry"
        start = ["{{- range $entry := $.Values.spec.scale }}", f"{{{{- $scale := {merged} }}}}"]
        return [*start, *documents, "{{- end }}"]
    shows_certificate = part.name == "metrics-api"
    return [*(_CERTIFICATE.splitlines() if shows_certificate else ()), *documents]


def _documents(part: _Part) -> list[list[str]]:
    """Return the lines of each object of a part, in the order of the objects."""
    folder = Folder([option.dimension for option in part.options], scalar, expressed)
    rendered = [(indices, part.build(values)) for indices, values in d.combinations(part.options)]
    names = list(dict.fromkeys(_identity(body) for _, bodies in rendered for body in bodies))
    return [
        folder.document([Case(indices, _find(bodies, name)) for indices, bodies in rendered])
        for name in names
    ]


def _identity(body: Object) -> tuple[str, str]:
    return body["kind"], body["metadata"]["name"]


def _find(bodies: Sequence[Object], name: tuple[str, str]) -> Object | None:
    return next((body for body in bodies if _identity(body) == name), None)


def _chart() -> dict[str, object]:
    return {
        "apiVersion": "v2",
        "name": "gpuscale",
        "description": "Scale GPU workloads on Kubernetes by what their GPUs really do.",
        "type": "application",
        "version": __version__,
        "appVersion": __version__,
        "kubeVersion": ">=1.21.0-0",
    }


_VALUES_NOTE = (
    "# The values file of gpuscale with every default; `gpuscale init` writes one for a cluster.\n"
    "# What each field is for: gpuscale schema values\n"
)
_NOTES = """\
{{- if not $.Values.spec.scale }}
Nothing is scaled yet: set spec.scale.
{{- end }}
{{- $image := $.Values.spec.image }}
{{- if and (ne $image.pullPolicy "Never") (not (contains "/" (trimPrefix "localhost/" $image.repository))) }}
Nodes can't pull {{ $image.repository }}, which names no registry: set spec.image.repository.
{{- end }}
{{- if or $.Values.spec.agent.enabled $.Values.spec.devicePlugin.enabled }}
The namespace has to allow folders of the node:
  kubectl label namespace {{ $.Release.Namespace }} pod-security.kubernetes.io/enforce=privileged --overwrite
{{- end }}
Next:
  gpuscale doctor         # follows values from the GPU to the HPA
  kubectl get hpa -A      # what the HPAs read and want
  kubectl get --raw /apis/custom.metrics.k8s.io/v1beta2    # what can be scaled on
"""


def _scale_defaults() -> dict[str, object]:
    """Return what a scale has unless it says otherwise; a workload's name and limits have no default."""
    some = Scale(workload=Workload(name="some"), target=1, max_replicas=1)
    data = some.model_dump(mode="json", by_alias=True)
    del data["target"], data["maxReplicas"], data["workload"]["name"]
    return data


def _schema() -> Any:  # noqa: ANN401 - a JSON schema
    """Return the schema of the values file; durations are texts here, which Helm passes through."""
    return _with_texts_for_durations(Values.model_json_schema())


def _with_texts_for_durations(schema: Any) -> Any:  # noqa: ANN401 - JSON of any shape
    if isinstance(schema, list):
        return [_with_texts_for_durations(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("anyOf") == [{"type": "string"}, {"type": "number"}]:
        rest = {key: value for key, value in schema.items() if key != "anyOf"}
        return {**rest, "type": "string"}
    return {key: _with_texts_for_durations(value) for key, value in schema.items()}


def _default_values() -> dict[str, object]:
    return Values(spec=ValuesSpec()).model_dump(mode="json", by_alias=True)
