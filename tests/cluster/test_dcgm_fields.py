"""Every name that NVIDIA's go-dcgm gives a number, current or legacy, has that number here.

dcgm-exporter looks the names of a counters file up there (`GetFieldID`: current names first, then legacy).
Its own module is not to be had from the Go module proxy. Only names of fields in base units have other
numbers: their values are converted (`signals.names`), so they have the number of the field in the older unit.
"""

import re

import pytest

from gpuscale.signals import FIELDS, NEW_NAMES, field_named, read_counters
from gpuscale.signals.known_fields import known_names
from gpuscale_testing import find_definitions, missing_definitions

pytestmark = pytest.mark.cluster

CURRENT, LEGACY = "dcgmFields", "legacyDCGMFields"
CONVERTED = {new.name: known_names()[old] for old, new in NEW_NAMES.items() if new.unit}
BASE_UNITS = range(1600, 1651)
"""Numbers of fields in base units, in DCGM 4.6 and later; releases before have none."""
DERIVED_FROM = 9000
"""dcgm-exporter's own metrics, `DCGM_EXP_...`, have numbers beyond; DCGM has none there."""


@pytest.fixture(scope="module")
def source() -> str:
    if reason := missing_definitions(["go-dcgm"]):
        pytest.skip(reason)
    return (find_definitions("go-dcgm") / "const_fields.go").read_text()


@pytest.fixture(scope="module")
def theirs(source: str) -> dict[str, int]:
    """What `GetFieldID` answers to each name."""
    return {**table(source, LEGACY), **table(source, CURRENT)}


def table(source: str, name: str) -> dict[str, int]:
    """Return a map of the Go file; its values are numbers or constants of the same file."""
    constants = {
        constant: int(number)
        for constant, number in re.findall(r"^\t(\w+) +Short += (\d+)$", source, re.MULTILINE)
    }
    (body,) = re.findall(
        rf"^var {name} = map\[string\]Short\{{\n(.*?)^\}}", source, re.MULTILINE | re.DOTALL
    )
    rows = re.findall(r"^\t\"(\w+)\": +(\w+),", body, re.MULTILINE)
    assert len(rows) == len([line for line in body.splitlines() if '"' in line])
    return {field: int(value) if value.isdecimal() else constants[value] for field, value in rows}


def test_the_tables_are_read_as_a_whole(source: str) -> None:
    """Their comments and ours name so many."""
    assert len(table(source, CURRENT)) > 600
    assert len(table(source, LEGACY)) > 300


def test_names_and_numbers_are_the_same(theirs: dict[str, int]) -> None:
    ours = known_names()
    assert {name: ours[name] for name in theirs if name not in CONVERTED} == {
        name: number for name, number in theirs.items() if name not in CONVERTED
    }
    assert set(ours) - set(theirs) <= set(CONVERTED)


def test_names_of_base_units_have_the_number_of_what_they_are_converted_from(
    theirs: dict[str, int],
) -> None:
    for name, number in CONVERTED.items():
        assert known_names()[name] == number
        assert name not in theirs or theirs[name] == number or theirs[name] in BASE_UNITS


def test_fields_that_are_read_have_their_numbers(theirs: dict[str, int]) -> None:
    of_dcgm = {name: each for name, each in FIELDS.items() if each.id < DERIVED_FROM}
    assert {name: field.id for name, field in of_dcgm.items()} == {
        name: theirs[name] for name in of_dcgm
    }


def test_a_counters_file_may_have_each_of_them(theirs: dict[str, int]) -> None:
    """As a gauge and as a label, with the number that go-dcgm gives."""
    for type_ in ("gauge", "counter", "label"):
        text = "\n".join(f"{name}, {type_}, what it is" for name in theirs)
        found = read_counters(text, "all.csv")
        assert found.problems == ()
        assert [each.name for each in found.rows] == list(theirs)
    assert {name: field_named(name).id for name in theirs} == {
        **theirs,
        **{name: number for name, number in CONVERTED.items() if name in theirs},
    }


def test_a_name_that_go_dcgm_has_not_is_refused(theirs: dict[str, int]) -> None:
    for name in theirs:
        assert read_counters(f"{name}X, gauge, x", "typo.csv").problems or f"{name}X" in theirs
