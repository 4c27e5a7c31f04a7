"""Caches stay within their bytes, whatever is put into them."""

import gc
import sys
import threading

import pytest

from gpuscale.base.byte_cache import (
    ENTRY_BYTES,
    MAX_TEXT,
    Accountant,
    ByteCache,
    deep_bytes,
    remembered,
)
from gpuscale.base.objects.selectors import parse_selector


def cache_of(entries, accountant=None):
    """Return a cache with room for entries of 100 bytes each."""
    return ByteCache("c", entries * (100 + ENTRY_BYTES), accountant or Accountant())


def test_what_was_used_longest_ago_goes_first() -> None:
    cache = cache_of(2)
    cache.put("a", 1, 100)
    cache.put("b", 2, 100)
    assert cache.get("a") == 1
    cache.put("c", 3, 100)
    assert list(cache) == ["a", "c"]
    assert cache.get("b") is None


def test_a_large_entry_pushes_nothing_out() -> None:
    cache = ByteCache("c", 10_000, Accountant(), most_entry_bytes=1000)
    cache.put("a", 1, 100)
    assert not cache.put("b", 2, 1001)
    assert list(cache) == ["a"]


def test_a_key_that_is_put_again_counts_once() -> None:
    cache = cache_of(2)
    for _ in range(5):
        cache.put("a", 1, 100)
    assert (len(cache), cache.bytes) == (1, 100 + ENTRY_BYTES)
    cache.clear()
    assert (len(cache), cache.bytes) == (0, 0)


def test_all_caches_together_have_a_bound_and_the_largest_makes_room() -> None:
    accountant = Accountant(5 * (100 + ENTRY_BYTES))
    large, small = cache_of(10, accountant), cache_of(10, accountant)
    small.put("s", 0, 100)
    for number in range(10):
        large.put(number, number, 100)
    assert accountant.total() == accountant.most_bytes
    assert (len(large), len(small)) == (4, 1)
    assert accountant.bytes_by_name() == {"c": accountant.most_bytes}


def test_caches_make_room_for_what_is_held_beside_them_down_to_a_quarter() -> None:
    """Room for 8 entries; 3 entries' bytes are held, then more than there is room for."""
    entry_bytes = 100 + ENTRY_BYTES
    accountant = Accountant(8 * entry_bytes)
    cache = cache_of(10, accountant)
    for number in range(8):
        cache.put(number, "x", 100)
    accountant.hold("catalogue", 3 * entry_bytes)
    assert list(cache) == [3, 4, 5, 6, 7]
    assert accountant.total() == accountant.most_bytes
    accountant.hold("catalogue", 100 * entry_bytes)
    assert list(cache) == [6, 7]
    assert accountant.bytes_by_name() == {"c": 2 * entry_bytes, "catalogue": 100 * entry_bytes}
    accountant.hold("catalogue", 0)
    for number in range(10):
        cache.put(number, "x", 100)
    assert len(cache) == 8


def test_a_cache_that_is_gone_takes_nothing() -> None:
    accountant = Accountant()
    cache_of(2, accountant).put("a", 1, 100)
    gc.collect()
    assert accountant.total() == 0


def test_texts_are_remembered_up_to_a_length() -> None:
    calls = []

    @remembered("t", 1 << 20)
    def length(text):
        calls.append(text)
        return len(text)

    short, long = "x" * MAX_TEXT, "x" * (MAX_TEXT + 1)
    for text in (short, short, long, long):
        assert length(text) == len(text)
    assert calls == [short, long, long]


@pytest.mark.parametrize("terms", [1, 100])
def test_bytes_count_all_that_is_inside(terms: int) -> None:
    """As much as Python says of each part: objects with slots, tuples, texts."""
    selector = parse_selector(",".join(f"key-{number:03}=v" for number in range(terms)))
    one = selector.requirements[0]
    requirement = sum(map(sys.getsizeof, (one, one.key, one.values, one.values[0])))
    parts = (selector, selector.requirements, selector.fault)
    whole = sum(map(sys.getsizeof, parts))
    assert deep_bytes(selector) == whole + terms * requirement


def test_threads_share_a_cache() -> None:
    cache = cache_of(8)

    def use() -> None:
        for number in range(3000):
            cache.put(number % 16, number, 100)
            cache.get((number + 1) % 16)

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(cache) == 8
    assert cache.bytes == 8 * (100 + ENTRY_BYTES)
