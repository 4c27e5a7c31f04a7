# mypy: disable-error-code="operator"
"""The rule file, read again when it changes, or when the cluster's resources do."""

import os
from pathlib import Path

import pytest

from gpuscale.base.errors import ConfigError
from gpuscale.server.metricsapi.rulebook.rule_file import RuleFile
from gpuscale.server.rules.resources import KUBERNETES, ResourceType

GOOD = "rules: [{seriesQuery: a, resources: {template: <<.Resource>>}, metricsQuery: a}]\n"
OTHER = GOOD.replace("seriesQuery: a", "seriesQuery: b")
TRAINING = """
rules:
- seriesQuery: a
  resources: {overrides: {t: {group: ml.example.com, resource: training}}}
  metricsQuery: a
"""


@pytest.fixture
def path(tmp_path: Path):
    path = tmp_path / "rules.yaml"
    path.write_text(GOOD)
    return path


def test_an_unchanged_file_gives_no_new_rules(path) -> None:
    rules = RuleFile(path, KUBERNETES, 1000)
    os.utime(path, (5, 5))
    assert rules.look(KUBERNETES, 2000) is None
    assert (rules.state.good_ms, rules.state.reloads) == (1000, 0)


def test_a_changed_file_gives_new_rules(path) -> None:
    rules = RuleFile(path, KUBERNETES, 1000)
    path.write_text(OTHER)
    assert rules.look(KUBERNETES, 2000).series_queries() == ("b",)
    assert (rules.state.good_ms, rules.state.reloads, rules.state.fault) == (2000, 1, None)


def test_a_link_that_is_turned_is_a_change(tmp_path: Path) -> None:
    for name, text in (("one", GOOD), ("two", OTHER)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rules.yaml").write_text(text)
    (tmp_path / "data").symlink_to("one")
    rules = RuleFile(tmp_path / "data" / "rules.yaml", KUBERNETES, 0)
    (tmp_path / "new").symlink_to("two")
    (tmp_path / "new").replace(tmp_path / "data")
    assert rules.look(KUBERNETES, 0).series_queries() == ("b",)


def test_a_bad_file_leaves_the_last_good_rules_and_is_told_once(
    path, caplog: pytest.LogCaptureFixture
) -> None:
    rules = RuleFile(path, KUBERNETES, 1000)
    path.write_text("rules: [{seriesQuery: [1]}]\n")
    assert [rules.look(KUBERNETES, 2000), rules.look(KUBERNETES, 3000)] == [None, None]
    assert rules.config.series_queries() == ("a",)
    assert rules.state.fault.startswith(f"{path}:1: rules[0].seriesQuery")
    assert (rules.state.good_ms, rules.state.failures) == (1000, 1)
    assert [record.getMessage().split("\n")[0] for record in caplog.records] == [
        "the last good rules stay:"
    ]
    path.write_text(GOOD)
    assert rules.look(KUBERNETES, 4000) is not None
    assert (rules.state.fault, rules.state.good_ms) == (None, 4000)


def test_a_file_that_is_gone_leaves_the_last_good_rules(path) -> None:
    rules = RuleFile(path, KUBERNETES, 1000)
    path.unlink()
    assert rules.look(KUBERNETES, 2000) is None
    assert rules.state.fault == f"{path}: can't be read: No such file or directory"
    path.write_text(GOOD)
    rules.look(KUBERNETES, 3000)
    assert rules.state.fault is None


def test_a_new_resource_of_the_cluster_is_a_change(path) -> None:
    rules = RuleFile(path, KUBERNETES, 1000)
    path.write_text(TRAINING)
    assert rules.look(KUBERNETES, 2000) is None
    assert "unknown resource 'training.ml.example.com'" in rules.state.fault
    training = ResourceType("trainings", "training", "Training", "ml.example.com")
    assert rules.look(KUBERNETES.extended(training), 3000) is not None
    assert rules.state.fault is None


def test_a_missing_file_is_told_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="can't be read: No such file or directory"):
        RuleFile(tmp_path / "none", KUBERNETES, 0)


DEAD = "- {seriesQuery: d, metricsQuery: <<.Serie>>}\n"
WITH_DEAD = f"rules:\n- {{seriesQuery: a, metricsQuery: a}}\n{DEAD}"


def test_a_rule_that_can_give_nothing_is_left_out_at_the_start_and_told(
    path, caplog: pytest.LogCaptureFixture
) -> None:
    path.write_text(WITH_DEAD)
    rules = RuleFile(path, KUBERNETES, 1000)
    assert rules.config.series_queries() == ("a",)
    assert (rules.state.good_ms, rules.state.fault) == (1000, None)
    (reason,) = rules.state.disabled
    assert reason.startswith(f"{path}:3: rules[1].metricsQuery: found '<<.Serie>>', expected")
    (record,) = caplog.records
    assert (record.levelname, reason in record.getMessage()) == ("ERROR", True)
    # What is changed beside it is taken, and once it is mended it is served.
    path.write_text(WITH_DEAD.replace("seriesQuery: a", "seriesQuery: b"))
    assert rules.look(KUBERNETES, 2000).series_queries() == ("b",)
    path.write_text(WITH_DEAD.replace("<<.Serie>>", "d"))
    assert rules.look(KUBERNETES, 3000).series_queries() == ("a", "d")
    assert rules.state.disabled == ()


@pytest.mark.parametrize(
    "text", [WITH_DEAD.replace("seriesQuery: d", "seriesQuery: a"), "", "rules: []"]
)
def test_a_running_server_loses_no_rule_by_a_mistake(path, text) -> None:
    rules = RuleFile(path, KUBERNETES, 1000)
    path.write_text(text)
    assert rules.look(KUBERNETES, 2000) is None
    assert rules.config.series_queries() == ("a",)
    assert str(path) in rules.state.fault
