# mypy: disable-error-code="arg-type"
"""Parsers of outside data end with their own error or with a result; never otherwise."""

import contextlib

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuscale.base.documents.documents import load_documents
from gpuscale.base.errors import ConfigError, NotFoundError
from gpuscale.base.golang.durations import format_duration, parse_duration_ms
from gpuscale.base.objects.manifests import load_manifests
from gpuscale.base.objects.selectors import parse_selector
from gpuscale.lab.sim.load.traces import load_trace
from gpuscale.lab.sim.scenario.loading import load_setup
from gpuscale.lab.sim.scenario.model import parse_scenario

KEYS = st.sampled_from(
    [
        "apiVersion",
        "kind",
        "metadata",
        "spec",
        "name",
        "template",
        "containers",
        "selector",
        "resources",
        "limits",
        "matchLabels",
        "metrics",
        "nodePools",
        "workloads",
        "load",
        "shape",
        "steps",
        "manifests",
    ]
)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=True)
    | st.sampled_from(
        ["apps/v1", "Deployment", "Job", "batch/v1", "v1", "Pod", "Scenario", "steps", "1Gi"]
    )
    | st.text(max_size=5)
)
TREES = st.recursive(
    LEAVES,
    lambda child: st.lists(child, max_size=3) | st.dictionaries(KEYS, child, max_size=5),
    max_leaves=25,
)


@settings(deadline=None)
@given(st.text())
def test_any_text_is_documents_or_a_config_error(text) -> None:
    with contextlib.suppress(ConfigError):
        load_documents(text, "f")


@given(TREES)
def test_any_tree_is_manifests_or_a_config_error(tree) -> None:
    import json

    with contextlib.suppress(ConfigError):
        load_manifests(json.dumps(tree), "f")


@given(TREES)
def test_any_tree_is_a_scenario_or_a_config_error(tree) -> None:
    import json

    def nothing(name) -> None:
        raise NotFoundError(f"no such file: {name}")

    with contextlib.suppress(ConfigError):
        parse_scenario(json.dumps(tree), "f")
    with contextlib.suppress(ConfigError):
        load_setup(json.dumps(tree), "f", nothing)


@given(st.text(max_size=60))
def test_any_text_is_a_selector_or_a_value_error(text) -> None:
    with contextlib.suppress(ValueError):
        selector = parse_selector(text)
        assert parse_selector(str(selector)) == selector


@given(st.text(max_size=20))
def test_any_text_is_a_duration_or_a_value_error(text) -> None:
    with contextlib.suppress(ValueError):
        parse_duration_ms(text)


@given(st.integers(0, 10**12))
def test_durations_round_trip(milliseconds) -> None:
    assert parse_duration_ms(format_duration(milliseconds)) == milliseconds


@settings(deadline=None)
@given(st.text(alphabet="t,r\n0123456789.-:\"' x", max_size=200))
def test_any_csv_is_a_trace_or_a_config_error(text) -> None:
    for rate in (None, "r"):
        with contextlib.suppress(ConfigError):
            load = load_trace(text, "f", time_column="t", rate_column=rate, scale=1.0)
            assert load.requests_until(0.0) >= 0
