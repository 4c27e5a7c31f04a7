from gpuscale.base.streams import name_suffix, stream


def test_the_same_name_gives_the_same_numbers() -> None:
    assert stream(1, "a").random() == stream(1, "a").random()


def test_other_names_and_seeds_give_other_numbers() -> None:
    values = {stream(1, "a").random(), stream(1, "b").random(), stream(2, "a").random()}
    assert len(values) == 3


def test_joined_names_do_not_collide() -> None:
    assert stream(1, "a", "b").random() != stream(1, "ab").random()


def test_suffixes_use_the_alphabet_of_kubernetes() -> None:
    suffix = name_suffix(1, "pod", length=200)
    assert len(suffix) == 200
    assert set(suffix) <= set("bcdfghjklmnpqrstvwxz2456789")
