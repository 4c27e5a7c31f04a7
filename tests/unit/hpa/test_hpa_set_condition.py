"""The list of conditions."""

from gpuscale.hpa.terms.conditions import (
    Verdict,
    is_true,
    remove_condition,
    set_condition,
    set_conditions,
)

YES = Verdict("A", is_true=True, reason="Yes", message="it is")
STILL = Verdict("A", is_true=True, reason="Still", message="it still is")
NO = Verdict("A", is_true=False, reason="No", message="it is not")
OTHER = Verdict("B", is_true=True, reason="Other", message="another")


def test_new_types_are_appended_in_the_order_of_their_first_setting() -> None:
    conditions = set_conditions((), (YES, OTHER, NO), 5)
    assert [(c.type, c.reason) for c in conditions] == [("A", "No"), ("B", "Other")]


def test_time_stays_while_the_status_stays() -> None:
    conditions = set_condition(set_condition((), YES, 5), STILL, 9)
    assert (conditions[0].reason, conditions[0].last_transition_ms) == ("Still", 5)


def test_time_moves_with_the_status() -> None:
    conditions = set_condition(set_condition((), YES, 5), NO, 9)
    assert (conditions[0].status, conditions[0].last_transition_ms) == ("False", 9)


def test_removed_condition_leaves_the_others() -> None:
    conditions = remove_condition(set_conditions((), (YES, OTHER), 5), "A")
    assert [c.type for c in conditions] == ["B"]


def test_absent_and_false_are_not_true() -> None:
    assert is_true(set_condition((), YES, 5), "A")
    assert not is_true(set_condition((), NO, 5), "A")
    assert not is_true((), "A")
