"""Versions, changes and pages of stored objects."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuscale.lab.kube_api import store as stores
from gpuscale.lab.kube_api.store import ExpiredError, ObjectFacts, Store


def facts(name, size=1, namespace="default"):
    def body():
        return {"metadata": {"name": name}, "size": size}

    return ObjectFacts("things", namespace, name, (name, size), body)


def names(items):
    return [each.key[1] for each in items]


def test_each_change_has_a_version_of_its_own() -> None:
    store = Store(100)
    store.take([facts("a"), facts("b")])
    store.take([facts("a", size=2)])
    steps = [
        (change.version, change.before is None, change.after is None, change.last.key[1])
        for change in store.changes_since(100)
    ]
    assert steps == [
        (101, True, False, "a"),
        (102, True, False, "b"),
        (103, False, False, "a"),
        (104, False, True, "b"),
    ]
    assert store.get("things", ("default", "a")).body["metadata"]["resourceVersion"] == "103"
    gone = store.changes_since(103)[0].last
    assert gone.body["metadata"]["resourceVersion"] == "104"


def test_what_did_not_change_keeps_its_version() -> None:
    store = Store(0)
    assert store.take([facts("a")])
    before = store.get("things", ("default", "a"))
    assert not store.take([facts("a")])
    assert store.get("things", ("default", "a")) is before


def test_other_facts_with_the_same_text_are_no_change() -> None:
    store = Store(0)
    store.take([ObjectFacts("things", "", "a", (1,), lambda: {"metadata": {"name": "a"}})])
    assert not store.take(
        [ObjectFacts("things", "", "a", (2,), lambda: {"metadata": {"name": "a"}})]
    )
    assert store.version == 1


def test_a_version_that_was_never_reached_is_gone() -> None:
    store = Store(10)
    with pytest.raises(ExpiredError):
        store.changes_since(11)
    with pytest.raises(ExpiredError):
        store.changes_since(9)


def test_changes_go_back_as_far_as_they_are_kept() -> None:
    store = Store(0)
    for size in range(stores.MAX_CHANGES + 5):
        store.take([facts("a", size=size)])
    last = stores.MAX_CHANGES + 5
    assert len(store.changes_since(last - stores.MAX_CHANGES)) == stores.MAX_CHANGES
    with pytest.raises(ExpiredError):
        store.changes_since(last - stores.MAX_CHANGES - 1)


def test_pages_show_the_list_as_it_was_at_the_first() -> None:
    store = Store(0)
    store.take(facts(name) for name in "abcde")
    first = store.page(store.all("things", None), 2)
    store.take([facts("a")])
    second = store.next_page(first.token, 2)
    third = store.next_page(second.token, 2)
    assert [names(page.items) for page in (first, second, third)] == [
        ["a", "b"],
        ["c", "d"],
        ["e"],
    ]
    assert [page.remaining for page in (first, second, third)] == [3, 1, 0]
    assert {page.version for page in (first, second, third)} == {5}
    assert third.token == ""


def test_lists_in_pages_are_bounded() -> None:
    store = Store(0)
    store.take(facts(name) for name in "abc")
    first = store.page(store.all("things", None), 1)
    for _ in range(stores.MAX_PAGED):
        store.page(store.all("things", None), 1)
    with pytest.raises(ExpiredError):
        store.next_page(first.token, 1)


def test_objects_are_listed_by_namespace() -> None:
    store = Store(0)
    store.take([facts("b"), facts("a"), facts("c", namespace="ml")])
    assert names(store.all("things", None)) == ["a", "b", "c"]
    assert names(store.all("things", "ml")) == ["c"]


@given(st.text() | st.binary().map(lambda raw: base64.urlsafe_b64encode(raw).decode()))
def test_any_token_is_a_page_or_a_fault(token) -> None:
    store = Store(0)
    with pytest.raises((ValueError, ExpiredError)):
        store.next_page(token, 1)


@given(st.recursive(st.none() | st.integers() | st.text(), st.lists))
def test_any_json_in_a_token_is_a_fault(value) -> None:
    token = base64.urlsafe_b64encode(json.dumps(value).encode()).decode()
    with pytest.raises((ValueError, ExpiredError)):
        Store(0).next_page(token, 1)
