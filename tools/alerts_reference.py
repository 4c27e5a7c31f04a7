"""The page about alerts, made of the chart's rule files.

`make reference` writes the page: `python tools/alerts_reference.py > docs/alerts.md`.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass

from gpuscale.base.documents.documents import load_documents
from gpuscale.ops.install.helm.rendering import chart_text
from gpuscale.ops.install.rendering import alert_groups
from gpuscale.ops.install.values import Values

_INTRO = """# Alerts

What the alert rules of an installation look for, and what to do. They come with `gpuscale render` and
`gpuscale install`: as a PrometheusRule where the Prometheus Operator is, else as a file in a ConfigMap.
`render --output-dir FOLDER` writes them as `rules/alerts.yaml` too, for `promtool` and for a Prometheus of
any other kind. An Alertmanager is not installed.

```yaml
spec:
  alerts:
    enabled: true      # the switch
    idle: 30m          # how long a pod may leave its GPU unused
    nodeStart: 15m     # how long a pod may wait for a node with a GPU
    docsUrl: docs/alerts.md  # where this page is for you; part of each alert's runbook_url
```

*critical*: scaling does not work, or a GPU is broken. *warning*: money is lost, or more may follow.

An alert without the series that it needs stays silent. The node agents, the metrics API and the scaler are
scraped by what the installation brings; alerts about a metrics API or a scaler that it does not have are left
out. kube-state-metrics is needed for what only Kubernetes knows: the conditions of HPAs, requests, pending
pods. `aggregator_unavailable_apiservice` is the API server's; clouds that hide the control plane hide it too,
and then `GpuMetricsApiDown` and `GpuHpaBlind` have to do.

HPAs are looked at if they have a metric with `gpu` or `DCGM_` in its name, or if the pods that they scale
request GPUs, whatever the metric is: the queue of a model server, CPU, KEDA's `s0-prometheus`. Not seen is an
HPA on another metric whose pods get GPUs without a request, as by a ResourceClaim, or belong to its target by
way of something that is no ReplicaSet.

Names are those of dcgm-exporter up to 4.8.

XIDs: the gauge keeps the latest one, so the same XID a second time is not seen.
`DCGM_EXP_XID_ERRORS_TOTAL`, which a counters file can switch on, counts all of them. Double-bit errors
count where the counters file has `DCGM_FI_DEV_ECC_DBE_VOL_TOTAL`; remapped rows always do, from Ampere on.

"""
_HEAD = """| alert | severity | fires after | needs |
| --- | --- | --- | --- |
"""
_END = """
This page is generated: `make reference` writes it again.
"""


# The scaler is installed, and its alerts with it, where KEDA scales by a signal of ours.
_INSTALLATION = {
    "workload": {"name": "chat"},
    "autoscaler": "keda",
    "signal": "vllm-waiting",
    "target": 4,
    "maxReplicas": 2,
}


@dataclass(frozen=True, slots=True)
class _Alert:
    name: str
    severity: str
    hold: str
    needs: str
    fragment: str
    meaning: str
    """Why it matters, and what may be behind it."""
    action: str
    expr: str


def alerts_markdown() -> str:
    """Return the page, with the alerts of an installation with default values."""
    alerts = list(_alerts())
    sections = "".join(map(_section, alerts))
    return f"{_INTRO}{_HEAD}{''.join(map(_row, alerts))}{sections}{_END}"


def _alerts() -> Iterator[_Alert]:
    """Yield the alerts, with what only their sources say: what they need, and where the advice begins."""
    sources = {
        rule["alert"]: rule["annotations"]
        for name in ("gpus", "scaling")
        for document in load_documents(chart_text(f"files/alerts/{name}.yaml"), name)
        for group in document.data["groups"]  # type: ignore[index]
        for rule in group["rules"]
    }
    values = Values.model_validate({"spec": {"scale": [_INSTALLATION]}})
    for rule in (rule for group in alert_groups(values) for rule in group["rules"]):
        meaning, action = sources[rule["alert"]]["description"].splitlines()
        yield _Alert(
            rule["alert"],
            rule["labels"]["severity"],
            rule.get("for", "at once"),
            sources[rule["alert"]]["needs"],
            rule["annotations"]["runbook_url"].split("#")[1],
            meaning,
            action,
            rule["expr"],
        )


def _row(alert: _Alert) -> str:
    link = f"[{alert.name}](#{alert.fragment})"
    return f"| {link} | {alert.severity} | {alert.hold} | {alert.needs} |\n"


def _section(alert: _Alert) -> str:
    return (
        f"\n## {alert.name}\n\n{alert.meaning}\n\n**What to do.** {alert.action}\n\n"
        f"```\n{alert.expr}\n```\n"
    )


def main() -> None:
    """Print the page."""
    sys.stdout.write(alerts_markdown())


if __name__ == "__main__":
    main()
