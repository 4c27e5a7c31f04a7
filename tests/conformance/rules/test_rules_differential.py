# mypy: disable-error-code="assignment, dict-item"
"""Our rules and Prometheus' give the same alerts and the same recorded samples, asked of promtool."""

import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from rule_tests import RuleTest, promtool

pytestmark = pytest.mark.prometheus
RECORDED = ["rec:a", "rec:b", "ALERTS", "ALERTS_FOR_STATE"]

EXPRESSIONS = [
    "x > 3",
    "x",
    "avg by (k) (x) > 2",
    "x > on (k) group_left y",
    "rate(c[150s]) > 0.01",
    "absent(x)",
    "absent(nothing)",
    "vector(1) > 0",
    "max_over_time(x[90s]) >= 4",
    "y unless on (k) x",
    "count(x) or vector(0)",
    "3 > bool 2",
    "ALERTS",
    "rec:a * 2",
    "-x",
]
LABELS = [
    {},
    {"severity": "page"},
    {"k": "fixed"},
    {"k": "{{ $labels.k }}-{{ $labels.missing }}", "empty": "{{ $labels.missing }}"},
    {"level": "{{ if gt $value 3.0 }}high{{ else }}low{{ end }}"},
    {"alertname": "other"},
]
ANNOTATIONS = [
    {},
    {"summary": "{{ $labels.k }} is {{ $value }}"},
    {"a": "{{ humanize $value }} {{ humanize1024 $value }} {{ humanizeDuration $value }}"},
    {
        "a": '{{ $value | humanizePercentage }} {{ printf "%.2f|%8.3f|%-8.1f" $value $value $value }}'
        '{{ printf "%e|%g" $value $value }}'
    },
    {"a": "{{ range $name, $text := $labels }}{{ $name }}={{ $text }} {{ end }}{{ len .Labels }}"},
    {
        "a": '{{ $labels.k | toUpper | printf "%-5s|" }}{{ title "ab cd" }}{{ with $labels.nope }}x{{ end }}'
    },
    {
        "a": '{{ reReplaceAll "(.)" "$1-" $labels.k }}{{ match "a|b" $labels.k }}{{ stripPort "h.d:90" }}'
    },
    {
        "a": '{{- /* none */ -}} {{ and $labels.k "yes" }} {{ eq $labels.k "a" "b" }} {{ index $labels "k" }}'
    },
    {"a": "{{ $labels }} {{ .ExternalLabels }}|{{ $externalURL }}|{{ humanizeTimestamp $value }}"},
]
WORDS = ["_", "stale", "0", "1", "2.5", "4", "5", "1e6", "-3", "0.0009765625", "1234567.5"]


def generated(seed):
    """Return a test of random groups over random series."""
    pick = random.Random(seed)
    series = {
        f'x{{k="{k}",i="{i}"}}': " ".join(pick.choices(WORDS, k=16)) for k in "ab" for i in "12"
    }
    series |= {f'y{{k="{k}"}}': " ".join(pick.choices(WORDS, k=16)) for k in "bc"}
    series["c"] = f"0+{pick.randint(0, 9)}x16"
    groups = []
    for number in range(2):
        rules = [{"record": f"rec:{'ab'[number]}", "expr": pick.choice(EXPRESSIONS[:-3])}]
        if pick.random() < 0.5:
            rules[0]["labels"] = {"from": "rule", "k": ""}
        for alert in range(3):
            rules.append(
                {
                    "alert": f"Alert{number}{alert}",
                    "expr": pick.choice(EXPRESSIONS),
                    "for": pick.choice(["0s", "1m", "90s", "3m"]),
                    "keep_firing_for": pick.choice(["0s", "0s", "1m", "150s"]),
                    "labels": pick.choice(LABELS),
                    "annotations": pick.choice(ANNOTATIONS),
                }
            )
        groups.append({"name": f"g{number}", "rules": rules})
    return RuleTest(groups, series, steps=16).run()


def test_generated_rules_give_what_prometheus_gives(tmp_path: Path) -> None:
    tests = [generated(seed) for seed in range(150)]
    kept = [(test, RECORDED) for test in tests if not test.failures]
    # Where two series become the same, both refuse the rule; promtool then ends its test.
    assert len(kept) > 30
    assert sum(len(found) for test, _ in kept for found in test.firing.values()) > 1000
    assert promtool(tmp_path, kept) == ""
