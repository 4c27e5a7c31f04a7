"""A ruler's own metrics under Prometheus' names, and a remark in words."""

from collections.abc import Callable

from gpuscale.base.exposition.families import Family, Sample
from gpuscale.series.rules import RuleGroup
from gpuscale.server.sources.ruler.files import PrometheusRuleFiles
from gpuscale.server.sources.ruler.ruler import Ruler

_SHOWN = 3
"""Rules that are named where many fail."""


def ruler_families(ruler: Ruler, files: PrometheusRuleFiles | None = None) -> tuple[Family, ...]:
    """Return the metrics of each group, and whether the current files are in use."""
    groups = ruler.groups.groups

    def by_group(
        name: str, kind: str, help_: str, value: Callable[[RuleGroup], float | None]
    ) -> Family:
        found = ((group.key, value(group)) for group in groups)
        samples = (
            Sample((("rule_group", key),), number) for key, number in found if number is not None
        )
        return Family(f"prometheus_rule_{name}", kind, help_, tuple(samples))

    return (
        by_group(
            "evaluations_total",
            "counter",
            "The total number of rule evaluations.",
            lambda group: sum(rule.status.evaluations for rule in group.rules),
        ),
        by_group(
            "evaluation_failures_total",
            "counter",
            "The total number of rule evaluation failures.",
            lambda group: sum(rule.status.failures for rule in group.rules),
        ),
        by_group(
            "group_iterations_total",
            "counter",
            "The total number of scheduled rule group evaluations, whether executed or missed.",
            lambda group: ruler.iterations[group.key],
        ),
        by_group(
            "group_iterations_missed_total",
            "counter",
            "The total number of rule group evaluations missed due to slow rule group evaluation.",
            lambda group: ruler.missed[group.key],
        ),
        by_group(
            "group_interval_seconds",
            "gauge",
            "The interval of a rule group.",
            lambda group: ruler.interval_of(group) / 1000,
        ),
        by_group(
            "group_last_duration_seconds",
            "gauge",
            "The duration of the last rule group evaluation.",
            lambda group: group.evaluation_s,
        ),
        by_group(
            "group_last_evaluation_timestamp_seconds",
            "gauge",
            "The timestamp of the last rule group evaluation in seconds.",
            lambda group: None if group.last_ms is None else group.last_ms / 1000,
        ),
        by_group(
            "group_last_evaluation_samples",
            "gauge",
            "The number of samples returned during the last rule group evaluation.",
            lambda group: ruler.samples.get(group.key),
        ),
        by_group(
            "group_rules",
            "gauge",
            "The number of rules.",
            lambda group: len(group.rules),
        ),
        *_file_families(files),
    )


def ruler_remark(ruler: Ruler, files: PrometheusRuleFiles | None = None) -> str:
    """Return the faults of rules and rule files in words; empty if there are none."""
    said = [] if files is None else [f"the last good rules stay: {each}" for each in files.faults]
    failing = ruler.failing()
    said += [f"rule {rule} fails: {reason}" for rule, reason in failing[:_SHOWN]]
    if len(failing) > _SHOWN:
        said.append(f"and {len(failing) - _SHOWN} more")
    return "; ".join(said)


def _file_families(files: PrometheusRuleFiles | None) -> tuple[Family, ...]:
    if files is None:
        return ()
    name = "gpuscale_prometheus_rule_files"
    return (
        Family(
            f"{name}_last_reload_successful",
            "gauge",
            "1 if all rule files as they are now are in use.",
            (Sample((), int(not files.faults)),),
        ),
        Family(
            f"{name}_reloads_total",
            "counter",
            "Changes of rule files that were taken, and that were not.",
            (
                Sample((("result", "failure"),), files.failures),
                Sample((("result", "success"),), files.reloads),
            ),
        ),
    )
