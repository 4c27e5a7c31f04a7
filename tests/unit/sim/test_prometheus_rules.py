"""Prometheus rules in virtual time: what fails is in the result, and what does not leaves it as it was."""

from dataclasses import replace

import pytest

from gpuscale.lab.scenarios import find_setup
from gpuscale.lab.sim.simulation import simulate
from gpuscale.lab.views.summary import summary_groups
from gpuscale.series.rules.load import load_rule_groups

RULES = """\
groups:
- name: g
  rules:
  - {record: recorded, expr: "sum(DCGM_FI_DEV_GPU_UTIL)"}
  - {alert: Busy, expr: DCGM_FI_DEV_GPU_UTIL > 50}
"""
FAILING = (
    RULES
    + """\
- name: failing
  interval: 1m
  rules:
  - {record: bad, expr: "label_replace(vector(1), 'a', '$1', 'b', '(')"}
  - {alert: Bad, expr: "label_replace(vector(1), 'a', '$1', 'b', '(')"}
"""
)


@pytest.fixture
def setup():
    return replace(find_setup("ack-bert"), duration_ms=600_000)


def test_rules_that_do_not_fail_leave_the_result_as_it_was(setup) -> None:
    rules = load_rule_groups(RULES, "r.yaml")
    # With these rules it runs through the pipeline, and without them by formula.
    with_rules, without = simulate(replace(setup, prometheus_rules=rules)), simulate(setup)
    assert with_rules.pop("fidelity") != without.pop("fidelity")
    assert with_rules == without


def test_rules_that_fail_are_in_the_result_with_how_often_and_why(setup) -> None:
    rules = load_rule_groups(FAILING, "r.yaml")
    document = simulate(replace(setup, prometheus_rules=rules))
    failed = document["summary"]["failedRules"]
    # Ten minutes with a first look at one second, and then once a minute.
    reason = "invalid regular expression in label_replace(): ("
    assert failed["failing/bad"] == {"evaluations": 10, "failures": 10, "lastError": reason}
    assert failed["failing/Bad"]["lastError"] == reason
    assert set(failed) == {"failing/bad", "failing/Bad"}
    assert ("Failed rules", failed) in summary_groups(document)


def test_one_setup_gives_the_same_result_twice(setup) -> None:
    setup = replace(setup, prometheus_rules=load_rule_groups(FAILING, "r.yaml"))
    assert simulate(setup) == simulate(setup)
