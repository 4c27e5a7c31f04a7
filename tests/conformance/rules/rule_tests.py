"""Runs promtool's rule tests on our own rules, and writes what ours give as a test for promtool.

`promtool test rules` evaluates all groups at every step from 0 on, whatever their intervals, with the
samples up to that step, and compares firing alerts and the results of queries. So it passes only where both
agree.
"""

import json
import math
import re
import subprocess
from dataclasses import dataclass, field

from gpuscale.base.exposition.reading.formats import PROMETHEUS_TEXT, line_entry
from gpuscale.series.labels import METRIC_NAME, LabelSet
from gpuscale.series.promql.evaluate import instant
from gpuscale.series.rules.alerting import AlertingRule, AlertState
from gpuscale.series.rules.load import load_rule_groups
from gpuscale.series.storage.store import SeriesStore

RUN = re.compile(r"(?P<first>[^x]+?)(?:(?P<sign>[+-])(?P<delta>[\d.e]+))?x(?P<count>\d+)")
_SERIES = re.compile(r'(?P<name>[a-zA-Z_:][\w:]*)(?P<labels>\{(?:[^"}]|"(?:\\.|[^"\\])*")*\})?')


@dataclass
class RuleTest:
    """Rule groups, series, and what they gave: alerts by step, and failures."""

    groups: list
    series: dict
    """Series to its values in promtool's notation, one per step."""
    step_ms: int = 60_000
    steps: int = 60
    store: SeriesStore = field(default_factory=lambda: SeriesStore(retention_ms=10**12))
    firing: dict = field(default_factory=dict)
    """By step and name of the alert."""
    failures: list = field(default_factory=list)

    def run(self):
        self._fill()
        rules = load_rule_groups(json.dumps({"groups": self.groups}), "rules.yaml")
        for step in range(self.steps + 1):
            for group in rules.groups:
                self.failures += _finished(group.run(self.store, step * self.step_ms), self.store)
            for rule in rules.rules():
                if isinstance(rule, AlertingRule):
                    self.firing.setdefault((step, rule.name), []).extend(
                        (dict(each.labels), dict(each.annotations))
                        for each in rule.current()
                        if each.state is AlertState.FIRING
                    )
        return self

    def document(self, queries):
        """Return promtool's test with our own answers as what is expected."""
        alerts = [
            {
                "eval_time": f"{step * self.step_ms // 1000}s",
                "alertname": name,
                "exp_alerts": [
                    {"exp_labels": _less_name(labels, name), "exp_annotations": annotations}
                    for labels, annotations in found
                ],
            }
            for (step, name), found in self.firing.items()
        ]
        asked = [
            {
                "expr": query,
                "eval_time": f"{step * self.step_ms // 1000}s",
                "exp_samples": self._samples(query, step * self.step_ms),
            }
            for query in queries
            for step in range(self.steps + 1)
        ]
        series = [{"series": name, "values": values} for name, values in self.series.items()]
        return {
            "interval": f"{self.step_ms // 1000}s",
            "input_series": series,
            "alert_rule_test": alerts,
            "promql_expr_test": asked,
        }

    def _samples(self, query, at_ms):
        return [
            {"labels": str(sample.labels), "value": _json_number(sample.value)}
            for sample in instant(self.store, query, at_ms).samples
        ]

    def _fill(self) -> None:
        for text, notation in self.series.items():
            ref = self.store.ref(labels_of(text))
            for step, value in enumerate(values_of(notation)):
                if value == "stale":
                    self.store.mark_stale(ref, step * self.step_ms)
                elif value is not None:
                    self.store.append_ref(ref, step * self.step_ms, value)


def _less_name(labels, name):
    # promtool adds the alert's name itself.
    assert labels["alertname"] == name
    return {key: value for key, value in labels.items() if key != "alertname"}


def _json_number(value):
    return value if math.isfinite(value) else {"inf": ".inf", "-inf": "-.inf"}[str(value)]


def _finished(run, store):
    try:
        question = next(run)
        while True:
            question = run.send(instant(store, question.query, question.at_ms))
    except StopIteration as ended:
        return ended.value.failures


def labels_of(text):
    match = _SERIES.fullmatch(text)
    line = line_entry(f"{text} 0", PROMETHEUS_TEXT)
    return LabelSet({**dict(line.labels), METRIC_NAME: match["name"]}.items())


def values_of(text):
    found = []
    for word in text.split():
        match = RUN.fullmatch(word)
        if word in {"_", "stale"}:
            found.append(None if word == "_" else word)
        elif match is None:
            found.append(float(word))
        elif match["first"] == "_":
            found += [None] * int(match["count"])
        else:
            delta = float((match["sign"] or "") + (match["delta"] or "0"))
            found += [float(match["first"]) + delta * i for i in range(int(match["count"]) + 1)]
    return found


def promtool(folder, tests):
    """Return what promtool says against these tests; nothing where it agrees with all."""
    files = []
    for number, (test, queries) in enumerate(tests):
        (folder / f"rules{number}.yaml").write_text(json.dumps({"groups": test.groups}))
        document = {
            "rule_files": [f"rules{number}.yaml"],
            "evaluation_interval": f"{test.step_ms // 1000}s",
            # Without it, promtool takes them in any order.
            "group_eval_order": [group["name"] for group in test.groups],
            "tests": [test.document(queries)],
        }
        files.append(folder / f"test{number}.yaml")
        files[-1].write_text(
            json.dumps(document).replace('".inf"', ".inf").replace('"-.inf"', "-.inf")
        )
    command = ["promtool", "test", "rules", *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr
