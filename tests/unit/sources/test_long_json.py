"""Long documents read item by item."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuscale.sources.long_json import read_array

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=12,
)


def read(text, key="result"):
    return asyncio.run(read_array(text.encode("utf-8", "surrogatepass"), key, lambda item: item))


@given(st.lists(VALUES, max_size=12), VALUES, st.sampled_from([None, 2]))
def test_items_and_rest_are_those_of_the_document(items, other, indent):
    document = {"status": "success", "data": {"result": items, "other": other}}
    separators = (",", ":") if indent is None else None
    text = json.dumps(document, indent=indent, separators=separators)
    found = read(text)
    if indent is not None:
        assert found is None
        return
    assert found.items == items
    assert found.rest == {"status": "success", "data": {"result": [], "other": other}}


@given(st.text(max_size=200) | st.text(alphabet='{}[]",:result1 \\', max_size=200))
def test_no_text_crashes_it(text):
    read(text)
    read(f'{{"result":[{text}')


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('{"data":{"a":1}}', id="no such key"),
        pytest.param('{"x":"' + "y" * 600 + '","result":[1]}', id="far from the beginning"),
        pytest.param('{"result":[1,2', id="cut off"),
        pytest.param('{"result":[1 2]}', id="no comma"),
        pytest.param('{"result":[' + '{"a":1},' * 9_999 + "]}", id="a comma too many"),
        pytest.param('{"result":[1,2]} x', id="text behind it"),
        pytest.param('{"x":"\\"result\\":[1]"}', id="the key inside of a text"),
    ],
)
def test_what_it_can_not_read_is_left_to_others(text):
    assert read(text) is None


@pytest.mark.parametrize("odd", ["},{", '"},{"', "\\", "]},{[", '},{"a":'])
def test_a_text_that_looks_like_the_place_between_two_items_is_none(odd):
    items = [{"a": odd * 3, odd: [{"b": odd}, {"c": [odd]}]} for _ in range(5_000)]
    found = read(json.dumps({"result": items, "more": odd}, separators=(",", ":")))
    assert (found.items, found.rest) == (items, {"result": [], "more": odd})


def test_others_have_their_turn_meanwhile():
    turns = []

    async def count():
        while True:
            turns.append(1)
            await asyncio.sleep(0)

    async def run():
        counting = asyncio.create_task(count())
        body = b'{"result":[' + b'{"a":1},' * 99_999 + b'{"a":1}]}'
        found = await read_array(body, "result", len)
        counting.cancel()
        return found

    assert len(asyncio.run(run()).items) == 100_000
    assert len(turns) > 10
