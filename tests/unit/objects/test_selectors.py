import pytest

from gpuscale.base.objects.selectors import (
    parse_selector,
    selector_of_expressions,
    selector_of_labels,
)


@pytest.mark.parametrize(
    ("text", "labels", "selected"),
    [
        ("", {}, True),
        ("app=x", {"app": "x"}, True),
        ("app==x", {"app": "x"}, True),
        ("app=x", {}, False),
        ("app!=x", {}, True),
        ("app!=x", {"app": "x"}, False),
        ("tier in (a, b)", {"tier": "b"}, True),
        ("tier notin (a,b)", {}, True),
        ("tier notin (a,b)", {"tier": "a"}, False),
        ("gpu", {"gpu": ""}, True),
        ("!gpu", {"gpu": ""}, False),
        ("n>1", {"n": "2"}, True),
        ("n>1", {"n": "x"}, False),
        ("n<1", {}, False),
        ("app=x,tier in (a),!old", {"app": "x", "tier": "a"}, True),
        ("example.com/name=x", {"example.com/name": "x"}, True),
    ],
)
def test_selectors_match_as_the_api_server_does(text: str, labels, selected: bool) -> None:
    assert parse_selector(text).matches(labels) is selected


@pytest.mark.parametrize(
    "text", ["app=", "tier in (a,b),x=y", "!gpu", "a!=b", "k notin (a)", "n>1", "gpu"]
)
def test_selectors_print_as_text_that_reads_back(text: str) -> None:
    selector = parse_selector(text)
    assert parse_selector(str(selector)) == selector


def test_requirements_are_sorted_by_key() -> None:
    assert str(parse_selector("b=2,a=1")) == "a=1,b=2"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a=b c=d", "unable to parse requirement: found 'a=b c=d'"),
        ("a=b,,c=d", "unable to parse requirement: found ',c=d'"),
        ("-x=1", "found label key '-x', expected letters, digits, '-', '_' and '.'"),
        (
            "a=org/model",
            "found label value 'org/model', expected at most 63 letters, digits, '-', '_' and '.'",
        ),
    ],
)
def test_bad_text_is_quoted_in_the_message(text: str, message: str) -> None:
    with pytest.raises(ValueError, match="found") as caught:
        parse_selector(text)
    assert str(caught.value) == message


def test_match_labels_and_expressions_join() -> None:
    selector = selector_of_expressions(
        {"app": "x"}, (("tier", "In", ("b", "a")), ("old", "DoesNotExist", ()))
    )
    assert str(selector) == "app=x,!old,tier in (a,b)"
    assert str(selector_of_labels({"b": "2", "a": "1"})) == "a=1,b=2"


def test_an_expression_without_values_is_refused() -> None:
    with pytest.raises(ValueError, match="operator In on 'a' takes at least one value"):
        selector_of_expressions({}, (("a", "In", ()),))
