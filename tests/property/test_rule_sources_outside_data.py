"""ConfigMaps and field selectors come from outside: whatever they hold, the result is rules or an error."""

import json

from hypothesis import given
from hypothesis import strategies as st

from gpuscale.base.errors import ConfigError
from gpuscale.base.golang.template import TemplateError
from gpuscale.kube.informers.records import ObjectRecord
from gpuscale.series.matchers import Matcher, MatchOp
from gpuscale.series.promql.parse import parse_query, selectors
from gpuscale.server.metricsapi.rulebook.team_rules import read_config_map
from gpuscale.server.metricsapi.wire.field_selectors import parse_field_selector
from gpuscale.server.rules.config import load_rules
from gpuscale.server.rules.confine import confined_config
from gpuscale.server.rules.resources import KUBERNETES

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["metadata", "name", "namespace", "data", "a"]), inner, max_size=4
        )
    ),
    max_leaves=10,
)
RECORD = ObjectRecord("ml", "web-0", {})
TEAM = Matcher("namespace", MatchOp.EQUAL, "team-a")
PARTS = st.sampled_from(
    [
        *("<<.Series>>", "{", "}", "<<.LabelMatchers>>", "(", ")", "sum", " by ", "<<.GroupBy>>"),
        *('namespace="other"', ",", " or ", "secret", "[5m]", "rate", "*", "1", "# ", '"', "'"),
        *("<<if .Series>>", "<<else>>", "<<end>>", " offset 1m", "@ 0", "{}", "`", "\\n"),
    ]
)


@given(st.dictionaries(st.sampled_from(["metadata", "data"]), JSON))
def test_any_object_is_a_config_map_or_none(body) -> None:
    found = read_config_map(body)
    assert found is None or (found.namespace and found.name)


@given(st.text(max_size=30) | st.sampled_from(["metadata.name", "=", "!=", ","]).map("".join))
def test_any_text_is_a_field_selector_or_refused(text) -> None:
    try:
        found = parse_field_selector(text)
    except ValueError:
        return
    assert found.takes(RECORD) in (True, False)


SELECTOR = st.builds(
    "{}{}".format,
    st.sampled_from(["<<.Series>>", "secret"]),
    st.sampled_from(
        [
            "",
            "{}",
            "{<<.LabelMatchers>>}",
            '{namespace="other"}',
            '{namespace=~".+",<<.LabelMatchers>>}',
        ]
    ),
)
QUERY = st.recursive(
    SELECTOR,
    lambda inner: (
        st.builds("sum({}) by (<<.GroupBy>>)".format, inner)
        | st.builds("<<if .Series>>{}<<else>>secret<<end>>".format, inner)
        | st.builds("({}) or ({})".format, inner, inner)
        | st.builds("({}) * on (pod) group_left () ({})".format, inner, inner)
        | st.builds("label_replace({}, 'namespace', 'other', '', '')".format, inner)
        | st.builds("max_over_time(({})[5m:1m] offset 1h)".format, inner)
    ),
    max_leaves=4,
)


@given(QUERY | st.lists(PARTS, max_size=12).map("".join))
def test_whatever_a_team_writes_its_query_has_the_matcher_everywhere(template) -> None:
    rule = {
        "seriesQuery": "m",
        "metricsQuery": template,
        "resources": {"template": "<<.Resource>>"},
    }
    try:
        config = load_rules(json.dumps([rule]), "cm", KUBERNETES)
        confined = confined_config(config, "team-a", ("namespace",), "cm")
    except ConfigError:
        return
    (only,) = confined.rules
    assert TEAM in next(selectors(parse_query(only.series_query).root)).matchers
    try:
        text = only.example("m")
    except TemplateError:
        return
    if text:
        assert all(TEAM in each.matchers for each in selectors(parse_query(text).root))
