"""Relabelling with upstream's results (prometheus model/relabel/relabel_test.go)."""

import pytest

from gpuscale.series.remote_write.relabelling import RelabelRule, relabelled

ABC = {"a": "foo", "b": "bar", "c": "baz"}


def rule(action="replace", sources=(), target="", **fields):
    return RelabelRule(action, tuple(sources), target_label=target, **fields)


CASES = [
    (
        ABC,
        [rule("replace", ["a"], "d", regex="f(.*)", replacement="ch${1}-ch${1}")],
        {**ABC, "d": "choo-choo"},
    ),
    (
        ABC,
        [
            rule("replace", ["a", "b"], "a", regex="f(.*);(.*)r", replacement="b${1}${2}m"),
            rule("replace", ["c", "a"], "d", regex="(b).*b(.*)ba(.*)", replacement="$1$2$2$3"),
        ],
        {"a": "boobam", "b": "bar", "c": "baz", "d": "boooom"},
    ),
    ({"a": "foo"}, [rule("drop", ["a"], regex=".*o.*")], None),
    ({"a": "foo", "b": "bar"}, [rule("drop", ["a"], regex="no-match")], {"a": "foo", "b": "bar"}),
    # The expression has to match the whole value.
    ({"a": "foo"}, [rule("drop", ["a"], regex="f|o")], {"a": "foo"}),
    ({"a": "foo"}, [rule("keep", ["a"], regex="no-match")], None),
    ({"a": "foo"}, [rule("keep", ["a"], regex="f.*")], {"a": "foo"}),
    # An empty value takes the label away.
    ({"a": "foo"}, [rule("replace", ["a"], "a", regex="f.*", replacement="")], {}),
    ({"a": "boo"}, [rule("replace", ["b"], "d", regex="b(.*)")], {"a": "boo"}),
    # MD5 of the values, its last eight bytes, modulo: upstream's own case.
    (ABC, [rule("hashmod", ["c"], "d", modulus=1000)], {**ABC, "d": "976"}),
    (
        {"a": "foo\nbar"},
        [rule("hashmod", ["a"], "b", modulus=1000)],
        {"a": "foo\nbar", "b": "734"},
    ),
    (
        {"a": "foo", "b1": "bar", "b2": "baz"},
        [rule("labelmap", regex="(b.*)", replacement="bar_${1}")],
        {"a": "foo", "b1": "bar", "b2": "baz", "bar_b1": "bar", "bar_b2": "baz"},
    ),
    (
        {"a": "foo", "__meta_my_bar": "aaa", "__meta_my_baz": "bbb", "__meta_other": "ccc"},
        [rule("labelmap", regex="__meta_(my.*)")],
        {
            "a": "foo",
            "__meta_my_bar": "aaa",
            "__meta_my_baz": "bbb",
            "__meta_other": "ccc",
            "my_bar": "aaa",
            "my_baz": "bbb",
        },
    ),
    ({"a": "foo", "b1": "bar", "b2": "baz"}, [rule("labelkeep", regex="a")], {"a": "foo"}),
    ({"a": "foo", "b1": "bar", "b2": "baz"}, [rule("labeldrop", regex="b.*")], {"a": "foo"}),
    (
        {"foo": "bAr123Foo"},
        [rule("lowercase", ["foo"], "low"), rule("uppercase", ["foo"], "up")],
        {"foo": "bAr123Foo", "low": "bar123foo", "up": "BAR123FOO"},
    ),
    (
        {"port": "1234", "other": "1234"},
        [rule("keepequal", ["port"], "other")],
        {"port": "1234", "other": "1234"},
    ),
    ({"port": "1234", "other": "5678"}, [rule("keepequal", ["port"], "other")], None),
    ({"port": "1234", "other": "1234"}, [rule("dropequal", ["port"], "other")], None),
    # The target may be made of what matched.
    (
        {"a": "some-name-value"},
        [rule("replace", ["a"], "${1}", regex="some-([^-]+)-([^,]+)", replacement="${2}")],
        {"a": "some-name-value", "name": "value"},
    ),
]


@pytest.mark.parametrize(("labels", "rules", "expected"), CASES)
def test_labels_become_what_upstream_makes_of_them(labels, rules, expected) -> None:
    assert relabelled(labels, rules) == expected


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"action": "replace"}, "target_label"),
        ({"action": "hashmod", "target_label": "x"}, "modulus"),
        ({"action": "keep", "regex": "("}, "RE2"),
    ],
)
def test_rules_that_can_mean_nothing(fields, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        RelabelRule(**fields)
