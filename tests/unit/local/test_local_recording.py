import logging

from gpuscale.local.recording import RuleRecorder
from gpuscale.series.recording import RuleFailure, load_recording_rules
from gpuscale.series.store import SeriesStore
from gpuscale.sources.query_pool import QueryPool

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


async def test_a_rule_that_takes_too_long_is_counted_and_leaves_the_others_alone(caplog):
    store = SeriesStore()
    store.append({"__name__": "util"}, 0, 20)
    recorder = RuleRecorder(
        load_recording_rules(RULES, "rules.yaml"), store, QueryPool(timeout_s=0.3)
    )
    with caplog.at_level(logging.WARNING):
        first = await recorder.record(1_000)
        await recorder.record(2_000)
    reason = "query timed out in expression evaluation"
    assert first.failures == (RuleFailure("g", "endless", reason),)
    assert values(store, "doubled") == [40, 40]
    assert values(store, "of_doubled") == [41, 41]
    assert recorder.failures == {"endless": 2}
    # Twice the same failure is one message.
    assert [record.getMessage() for record in caplog.records] == [
        f"recording rule endless of group g failed: {reason}"
    ]
