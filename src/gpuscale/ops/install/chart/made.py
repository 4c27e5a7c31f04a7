"""The chart's generated files: data about providers and signals, default values and their schema.

Templates, alerts and dashboards are written by hand. `rendering` renders them in process; a test compares it
with Helm.
"""

import json
from typing import Any

from gpuscale.base.documents.described import described_schema
from gpuscale.base.documents.documents import dump_documents
from gpuscale.ops.install.chart.queues import queue_texts
from gpuscale.ops.install.chart.reference import values_reference
from gpuscale.ops.install.chart.signal_rules import has_rule, signal_rule
from gpuscale.ops.install.scale.scale import Scale, Workload
from gpuscale.ops.install.values import Values
from gpuscale.ops.providers import BUILT_IN, Provider
from gpuscale.server.metricsapi.federation import USUAL
from gpuscale.signals import SIGNALS, Signal, value_by

_DATA_NOTE = "# Made by `python -m gpuscale.ops.install.chart`.\n"


def chart_files() -> dict[str, str]:
    """Return the chart's generated files, by name."""
    return {
        "values.yaml": _VALUES_NOTE + values_reference(described_schema(Values)),
        "values.schema.json": json.dumps(_schema(), indent=2, sort_keys=True) + "\n",
        "files/providers.yaml": _data({each.name: provider_data(each) for each in BUILT_IN}),
        "files/signals.yaml": _data([_signal(name, each) for name, each in SIGNALS.items()]),
        "files/federation.yaml": _data({name: each.target for name, each in USUAL.items()}),
        "files/scale-defaults.yaml": _data(_scale_defaults()),
        "files/queues.yaml": _data(queue_texts()),
    }


def _data(data: object) -> str:
    return _DATA_NOTE + dump_documents([data])


def provider_data(provider: Provider) -> dict[str, object]:
    """Return a provider's data for the templates."""
    labels = [
        {"key": each.key, **({"values": list(each.values)} if each.values else {})}
        for each in provider.gpu_node_labels()
    ]
    return {"nodeLabels": labels, "hostDriver": provider.host_driver}


def _signal(name: str, signal: Signal) -> dict[str, object]:
    found: dict[str, object] = {
        "name": name,
        "metric": signal.metric,
        "series": signal.series,
        "aggregate": signal.aggregate,
        "isAlibabas": signal.is_alibabas,
    }
    if signal.is_of_gpus:
        divisor = {} if signal.divisor is None else {"divisor": signal.divisor}
        part = {} if signal.is_alibabas else {"part": signal_rule(signal)}
        return {**found, **divisor, **part}
    found = {"name": name, "metric": signal.metric, "kind": signal.kind}
    if signal.kind == "pods":
        value = value_by(signal, "$matchers", "$by")
        found |= {"value": value, "port": signal.family.port, "path": signal.family.path}
    else:
        found |= {"query": signal.query, "isThereAtZero": signal.is_there_at_zero}
    if signal.described is not None:
        described = {"apiVersion": signal.described.api_version, "kind": signal.described.kind}
        found |= {"described": described, "isTotal": signal.is_total}
    return {**found, "rule": signal_rule(signal)} if has_rule(signal) else found


_VALUES_NOTE = """\
# Every field of gpuscale's values file with its default; `gpuscale init` writes one for a cluster.
# Mappings are merged into these, lists replace them, null removes.
# Made by `python -m gpuscale.ops.install.chart`.
"""


def _scale_defaults() -> dict[str, object]:
    """Return the defaults of an entry of `scale`; a workload's name and limits have none."""
    some = Scale(workload=Workload(name="some"), target=1, max_replicas=1)
    data = some.model_dump(mode="json", by_alias=True)
    del data["target"], data["maxReplicas"], data["workload"]["name"]
    return data


def _schema() -> Any:  # noqa: ANN401 - a JSON schema
    """Return the JSON schema of the values file; durations are strings, which Helm passes through."""
    schema = described_schema(Values)
    # Helm adds this key to the values of subcharts.
    schema["properties"]["global"] = {
        "type": "object",
        "description": "Of a chart around this one.",
    }
    return _with_texts_for_durations(schema)


def _with_texts_for_durations(schema: Any) -> Any:  # noqa: ANN401 - JSON of any shape
    if isinstance(schema, list):
        return [_with_texts_for_durations(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("anyOf") == [{"type": "string"}, {"type": "number"}]:
        rest = {key: value for key, value in schema.items() if key != "anyOf"}
        return {**rest, "type": "string"}
    return {key: _with_texts_for_durations(value) for key, value in schema.items()}
