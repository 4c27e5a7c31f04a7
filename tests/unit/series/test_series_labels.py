from gpuscale.series.labels import LabelSet, label_set


def test_labels_are_sorted_and_empty_ones_left_out() -> None:
    labels = LabelSet([("pod", "a"), ("gpu", "0"), ("empty", "")])
    assert list(labels.items()) == [("gpu", "0"), ("pod", "a")]
    assert labels == {"pod": "a", "gpu": "0"}
    assert "pod" in labels
    assert "empty" not in labels
    assert labels.get("nosuch") is None


def test_same_labels_are_equal_and_hash_alike_in_any_order() -> None:
    left = LabelSet([("a", "1"), ("b", "2")])
    right = LabelSet([("b", "2"), ("a", "1")])
    assert left == right
    assert len({left, right}) == 1


def test_values_with_separators_make_no_two_label_sets_alike() -> None:
    assert LabelSet([("a", "1', 'b")]) != LabelSet([("a", "1"), ("b", "")])
    assert LabelSet([("a", "x"), ("b", "y")]).key != LabelSet([("a", "x'), ('b', 'y")]).key


def test_text_is_what_prometheus_prints() -> None:
    assert str(LabelSet([("__name__", "up"), ("b", 'q"'), ("a", "1")])) == 'up{a="1", b="q\\""}'
    assert str(LabelSet([("__name__", "up")])) == "up"
    assert str(LabelSet([])) == "{}"
    assert str(LabelSet([("a", "1")])) == '{a="1"}'


def test_projections_return_new_label_sets() -> None:
    labels = LabelSet([("__name__", "up"), ("a", "1"), ("b", "2")])
    assert labels.without_name() == {"a": "1", "b": "2"}
    assert labels.keep(["b", "nosuch"]) == {"b": "2"}
    assert labels.drop(["b", "__name__"]) == {"a": "1"}
    assert labels.override({"a": "", "c": "3"}) == {"__name__": "up", "b": "2", "c": "3"}
    assert label_set(labels) is labels
