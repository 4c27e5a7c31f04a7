"""Long arrays read slice by slice."""

import asyncio
import contextlib
import json

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpuscale.server.sources.prometheus.answers import LONG_BYTES, read_array

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=12,
)
DECODE = msgspec.json.Decoder(list).decode


def read(body, decode=DECODE):
    async def run():
        return [part async for part in read_array(body, decode)]

    return asyncio.run(run())


def joined(parts):
    return [item for part in parts for item in part]


@given(st.lists(VALUES, max_size=12), st.sampled_from([None, 2]))
def test_items_are_those_of_the_array(items, indent) -> None:
    separators = (",", ":") if indent is None else None
    text = json.dumps(items, indent=indent, separators=separators, ensure_ascii=False)
    assert joined(read(text.encode("utf-8", "replace"))) == json.loads(
        text.encode("utf-8", "replace")
    )


@example(b'"\x80"')
@given(st.binary(max_size=200) | st.text(alphabet='{}[]",:1 \\', max_size=200).map(str.encode))
def test_what_is_no_array_is_refused_and_crashes_nothing(body) -> None:
    for whole in (body, b"[" + body):
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
            read(whole)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"[" + b'{"a":1},' * 99_999, id="cut off"),
        pytest.param(b"[" + b'{"a":1},' * 99_999 + b"]", id="a comma too many"),
        pytest.param(b"[" + b'{"a":1},' * 99_999 + b'{"a":1}] x', id="text behind it"),
        pytest.param(b'{"a":"' + b"},{" * 99_999 + b'"}', id="no array"),
    ],
)
def test_a_long_one_that_is_broken_is_refused(body) -> None:
    with pytest.raises(msgspec.DecodeError):
        read(body)


@pytest.mark.parametrize("odd", ["},{", '"},{"', "\\", "]},{[", '},{"a":'])
def test_a_text_that_looks_like_the_place_between_two_items_is_none(odd: str) -> None:
    items = [{"a": odd * 3, odd: [{"b": odd}, {"c": [odd]}]} for _ in range(5_000)]
    assert joined(read(json.dumps(items, separators=(",", ":")).encode())) == items


def test_others_have_their_turn_after_each_slice() -> None:
    turns = 0

    async def run():
        nonlocal turns

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        body = b"[" + b'{"a":1},' * 99_999 + b'{"a":1}]'
        sizes = [len(part) async for part in read_array(body, DECODE)]
        counting.cancel()
        return sizes, len(body)

    sizes, length = asyncio.run(run())
    assert sum(sizes) == 100_000
    assert turns >= length // (LONG_BYTES + 8)
