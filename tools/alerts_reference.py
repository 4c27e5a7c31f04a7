"""The page about alerts, made of their rule files.

`make reference` writes the page: `python tools/alerts_reference.py > docs/alerts.md`.
"""

import sys
from collections.abc import Iterable

from gpuscale.ops.install.alerts.groups import AlertRule, AlertSettings, rule_groups

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


def alerts_markdown() -> str:
    """Return the page, with the alerts of an installation with default values."""
    rules = [rule for group in rule_groups(AlertSettings()) for rule in group.rules]
    sections = "".join(map(_section, rules))
    return f"{_INTRO}{_table(rules)}{sections}{_END}"


def _table(rules: Iterable[AlertRule]) -> str:
    return _HEAD + "".join(map(_row, rules))


def _row(rule: AlertRule) -> str:
    _, fragment = rule.annotations.runbook_url.split("#")
    link = f"[{rule.alert}](#{fragment})"
    return f"| {link} | {rule.labels.severity} | {rule.hold or 'at once'} | {rule.annotations.needs} |\n"


def _section(alert: AlertRule) -> str:
    return (
        f"\n## {alert.alert}\n\n{alert.meaning}\n\n**What to do.** {alert.action}\n\n"
        f"```\n{alert.expr}\n```\n"
    )


def main() -> None:
    """Print the page."""
    sys.stdout.write(alerts_markdown())


if __name__ == "__main__":
    main()
