"""Plain data as dataclasses; what pydantic finds in the same data is the reference."""

from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from gpuscale.base.documents.shapes import read_shape, schema_of, under


@dataclass(frozen=True)
class Inner:
    """A mapping with a required key, and a condition on the whole."""

    name: str
    mode: Literal["one", "two"] = "one"

    def __post_init__(self) -> None:
        """Refuse a name."""
        if self.name == "x":
            raise ValueError("found x")


@dataclass(frozen=True)
class Outer:
    """Every kind of field."""

    items: list[Inner] = field(default_factory=list)
    by_name: dict[str, Inner] = field(default_factory=dict, metadata=under("byName"))
    whole: Inner | None = None
    flag: bool = False
    anything: Any = None


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _without_empty_keys(cls, data):
        if isinstance(data, dict):
            return {key: value for key, value in data.items() if value is not None}
        return data


class InnerModel(_Model):
    """`Inner`, by pydantic."""

    name: str
    mode: Literal["one", "two"] = "one"

    @model_validator(mode="after")
    def _refuses_a_name(self):
        if self.name == "x":
            raise ValueError("found x")
        return self


class OuterModel(_Model):
    """`Outer`, by pydantic."""

    items: list[InnerModel] = []
    by_name: dict[str, InnerModel] = Field({}, alias="byName")
    whole: InnerModel | None = None
    flag: bool = False
    anything: Any = None


KEYS = st.sampled_from(
    ["items", "byName", "by_name", "whole", "flag", "anything", "name", "mode", "other"]
)
SCALARS = st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from(["one", "two", "x", ""])
DATA = st.recursive(
    SCALARS,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(KEYS, below, max_size=4),
    max_leaves=12,
)
INNERS = st.fixed_dictionaries({}, optional={"name": DATA, "mode": DATA, "other": SCALARS})
OUTERS = st.fixed_dictionaries(
    {},
    optional={
        "items": st.lists(INNERS | DATA, max_size=3) | DATA,
        "byName": st.dictionaries(KEYS, INNERS | SCALARS, max_size=3) | DATA,
        "whole": INNERS | DATA,
        "flag": SCALARS,
        "anything": DATA,
        "other": DATA,
    },
)


@given(OUTERS | DATA)
def test_finds_what_pydantic_finds(data) -> None:
    try:
        model = OuterModel.model_validate(data)
    except ValidationError as error:
        found, faults = read_shape(Outer, data)
        assert found is None
        expected = error.errors(include_url=False)
        assert [(each["type"], each["loc"]) for each in faults] == [
            (each["type"], each["loc"]) for each in expected
        ]
        for mine, theirs in zip(faults, expected, strict=True):
            if mine["type"] == "literal_error":
                assert mine["ctx"] == theirs["ctx"]
            if mine["type"] == "value_error":
                assert f"Value error, {mine['msg']}" == theirs["msg"]
    else:
        found, faults = read_shape(Outer, data)
        assert not faults
        assert _plain(found) == model.model_dump()


def _plain(outer):
    def inner(each):
        return {"name": each.name, "mode": each.mode}

    return {
        "items": [inner(each) for each in outer.items],
        "by_name": {name: inner(each) for name, each in outer.by_name.items()},
        "whole": None if outer.whole is None else inner(outer.whole),
        "flag": outer.flag,
        "anything": outer.anything,
    }


@pytest.mark.parametrize(("data", "is_read"), [([{"name": "a"}], True), ({}, False), ([3], False)])
def test_reads_lists(data, is_read: bool) -> None:
    found, faults = read_shape(list[Inner], data)
    assert bool(faults) is not is_read
    assert (found == [Inner("a")]) is is_read


def test_names_the_fields_as_the_data_has_them() -> None:
    inner = {"properties": {"name": {}, "mode": {}}}
    assert schema_of(Outer) == {
        "properties": {
            "items": {"items": inner},
            "byName": {"additionalProperties": inner},
            "whole": inner,
            "flag": {},
            "anything": {},
        }
    }
