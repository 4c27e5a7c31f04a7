import logging
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from background import started, until
from gpuscale.base.clock import ManualClock, WallClock
from gpuscale.base.errors import ConfigError
from gpuscale.series.promapi.query_pool import QueryPool
from gpuscale.series.rules.load import load_rule_groups
from gpuscale.series.rules.rule import RuleFailure
from gpuscale.series.storage.store import SeriesStore
from gpuscale.server.sources.ruler.files import PrometheusRuleFiles
from gpuscale.server.sources.ruler.ruler import Ruler

RULES = """\
groups:
- name: g
  rules:
  - record: endless
    expr: sum_over_time(vector(1)[4000000s:1s])
  - record: doubled
    expr: util * 2
  - record: of_doubled
    expr: doubled + 1
"""


def values(store, name):
    (series,) = [each for each in store.select(()) if each.labels["__name__"] == name]
    return list(series.values)


async def test_a_rule_that_takes_too_long_is_counted_and_leaves_the_others_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = SeriesStore()
    store.append({"__name__": "util"}, 0, 20)
    rules = load_rule_groups(RULES, "rules.yaml")
    ruler = Ruler(rules, store, QueryPool(timeout_s=0.3), ManualClock())
    with caplog.at_level(logging.WARNING):
        first = await ruler.evaluate(1_000)
        await ruler.evaluate(2_000)
    reason = "query timed out in expression evaluation"
    assert first.failures == (RuleFailure("g", "endless", reason),)
    assert values(store, "doubled") == [40, 40]
    assert values(store, "of_doubled") == [41, 41]
    assert [rule.status.failures for rule in rules.rules()] == [2, 0, 0]
    assert ruler.failing() == [("g/endless", reason)]
    # Twice the same failure is one message.
    assert [record.getMessage() for record in caplog.records] == [
        f"rule endless of group g failed: {reason}"
    ]


def grouped(*intervals_ms, expr="util + 1"):
    groups = "".join(
        f"- name: g{number}\n  interval: {interval}ms\n  rules:\n  - {{record: r{number}, expr: '{expr}'}}\n"
        for number, interval in enumerate(intervals_ms)
    )
    return load_rule_groups(f"groups:\n{groups}", "rules.yaml")


@asynccontextmanager
async def running(ruler, files=None):
    async with started(ruler.run(files)):
        yield


def live(rules, **options):
    clock, store = WallClock(), SeriesStore()
    store.append({"__name__": "util"}, clock.now_ms(), 20)
    return Ruler(rules, store, QueryPool(**options), clock), store


async def test_groups_are_evaluated_at_a_time_of_their_own_in_each_interval() -> None:
    rules = grouped(*[200] * 8)
    ruler, store = live(rules)
    async with running(ruler):
        await until(lambda: all(ruler.iterations[group.key] > 2 for group in rules.groups))
    times = [
        next(list(each.times_ms) for each in store.select(()) if each.labels["__name__"] == f"r{n}")
        for n in range(8)
    ]
    # Whatever the machine is busy with: evaluated at the same part of the interval, and not all at one.
    phases = [{time_ms % 200 for time_ms in each} for each in times]
    assert [len(each) for each in phases] == [1] * 8
    assert len(set.union(*phases)) > 1


async def test_a_group_that_takes_too_long_leaves_out_evaluations_and_holds_up_no_other() -> None:
    slow = "sum_over_time(vector(1)[4000000s:1s])"
    rules = load_rule_groups(
        "groups:\n"
        f"- {{name: slow, interval: 50ms, rules: [{{record: s, expr: '{slow}'}}]}}\n"
        "- {name: quick, interval: 50ms, rules: [{record: q, expr: util}]}\n",
        "rules.yaml",
    )
    ruler, _ = live(rules, timeout_s=0.5)
    async with running(ruler):
        await until(lambda: rules.rules()[0].status.failures >= 2)
    slow_key, quick_key = (group.key for group in rules.groups)
    # One takes ten intervals.
    assert ruler.missed[slow_key] >= 2 * 5
    assert (
        ruler.iterations[slow_key] == ruler.missed[slow_key] + rules.rules()[0].status.evaluations
    )
    assert (
        ruler.iterations[quick_key] - ruler.missed[quick_key] > rules.rules()[0].status.evaluations
    )


async def test_changed_files_are_taken_and_series_of_rules_that_are_gone_end(
    tmp_path: Path,
) -> None:
    path = tmp_path / "rules.yaml"

    def write(name) -> None:
        path.write_text(
            f"groups: [{{name: g, interval: 50ms, rules: [{{record: {name}, expr: util}}]}}]"
        )

    write("before")
    files = PrometheusRuleFiles([path])
    ruler, store = live(files.groups)
    recorded = {}
    async with running(ruler):
        await until(lambda: ruler.groups.rules()[0].status.evaluations)
        write("after")
        ruler.replace(files.look(), ruler._clock.now_ms())
        await until(lambda: ruler.groups.rules()[0].status.evaluations)
    for series in store.select(()):
        recorded[series.labels["__name__"]] = series.is_stale()
    assert recorded == {"util": False, "before": True, "after": False}
    assert (files.reloads, files.failures, files.look()) == (1, 0, None)


async def test_bad_files_keep_the_last_good_groups_each_its_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good, other = tmp_path / "a.yaml", tmp_path / "b.yml"
    good.write_text("groups: [{name: a, rules: [{record: r, expr: x}]}]")
    other.write_text("groups: [{name: b, rules: [{record: r, expr: x}]}]")
    files = PrometheusRuleFiles([tmp_path])
    good.write_text("groups: [{name: a, rules: [{record: r, expr: 'x('}]}]")
    assert files.look() is None
    assert files.look() is None
    assert len(files.faults) == 1
    assert files.failures == 1
    assert len(caplog.records) == 1
    other.write_text("groups: [{name: c, rules: [{record: r, expr: x}]}]")
    assert [group.name for group in files.look().groups] == ["a", "c"]
    good.unlink()
    # A file of a mounted ConfigMap may be away for a moment.
    files.look()
    assert [group.name for group in files.groups.groups] == ["a", "c"]
    assert [group.name for group in files.look().groups] == ["c"]
    assert files.faults == []


def test_every_file_that_is_wrong_at_the_start_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("groups: 1")
    (tmp_path / "b.yaml").write_text("groups: [{name: a, rules: [{record: r, expr: 'x('}]}]")
    with pytest.raises(ConfigError) as caught:
        PrometheusRuleFiles([tmp_path, tmp_path / "missing"])
    assert [Path(each.source).name for each in caught.value.problems] == [
        "a.yaml",
        "b.yaml",
        "missing",
    ]
    # A process that starts again while a file is bad goes on without its rules.
    files = PrometheusRuleFiles([tmp_path], must_be_good=False)
    assert (len(files.faults), files.groups.groups) == (2, ())
