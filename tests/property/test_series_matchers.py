"""Expressions that list their values select what RE2 selects."""

from hypothesis import given
from hypothesis import strategies as st

from gpuscale.base.regex import compile_re2, escape
from gpuscale.series.matchers import Matcher, MatchOp
from gpuscale.series.storage.store import SeriesStore

NAMES = st.text("ab.-_|+(é\\ ", max_size=4)
"""Few letters, so that many of them meet; with operators of RE2, written as such or escaped."""
LISTS = st.lists(st.one_of(NAMES, NAMES.map(escape)), max_size=4).map("|".join)


def matches(expression: str, text: str) -> bool:
    return compile_re2(expression).fullmatch(text) is not None


def is_valid(expression: str) -> bool:
    try:
        compile_re2(expression)
    except ValueError:
        return False
    return True


VALID = LISTS.filter(is_valid)


@given(VALID, NAMES)
def test_a_list_of_values_has_what_the_expression_matches(expression: str, text: str) -> None:
    values = Matcher("pod", MatchOp.REGEX, expression).values()
    if values is not None:
        assert all(matches(expression, value) for value in values)
        assert (text in values) == matches(expression, text)


@given(st.sampled_from((MatchOp.REGEX, MatchOp.NOT_REGEX)), VALID, NAMES)
def test_a_predicate_says_what_the_expression_says(op: MatchOp, expression: str, text: str) -> None:
    verdict = Matcher("pod", op, expression).predicate()(text)
    assert verdict == (matches(expression, text) == (op is MatchOp.REGEX))


@given(
    st.lists(st.tuples(NAMES, NAMES), unique=True, max_size=12),
    st.lists(
        st.builds(
            Matcher,
            st.sampled_from(("namespace", "pod", "absent")),
            st.sampled_from(MatchOp),
            VALID,
        ),
        max_size=3,
    ).map(tuple),
)
def test_a_store_selects_what_fulfils_each_condition_once(
    pods: list[tuple[str, str]], conditions: tuple[Matcher, ...]
) -> None:
    store = SeriesStore()
    for namespace, pod in pods:
        store.append({"__name__": "u", "namespace": namespace, "pod": pod}, 1_000, 1.0)

    def fulfils(labels: dict[str, str], each: Matcher) -> bool:
        value = labels.get(each.name, "")
        if each.op in (MatchOp.EQUAL, MatchOp.NOT_EQUAL):
            return (value == each.value) == (each.op is MatchOp.EQUAL)
        return matches(each.value, value) == (each.op is MatchOp.REGEX)

    expected = {
        (namespace, pod)
        for namespace, pod in pods
        if all(fulfils({"namespace": namespace, "pod": pod}, each) for each in conditions)
    }
    found = [
        (each.labels.value("namespace"), each.labels.value("pod"))
        for each in store.select(conditions)
    ]
    assert len(found) == len(set(found))
    assert set(found) == expected


def test_names_of_pods_are_a_list_and_operators_are_not() -> None:
    def values(expression: str) -> tuple[str, ...] | None:
        return Matcher("pod", MatchOp.REGEX, expression).values()

    assert values("web-1|web-2|web-1") == ("web-1", "web-2")
    assert values(r"web\.v1-0|") == ("web.v1-0", "")
    for expression in ("web.v1", "web-.*", "(a|b)", "[ab]", "a+", "a?", r"\d", "^a$", r"a\|b", "é"):
        assert values(expression) is None
