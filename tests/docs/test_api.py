# mypy: disable-error-code="attr-defined"
"""docs/api.md and the modules promise the same names, and importing the package costs nothing."""

import importlib
import re
import subprocess
import sys

import pytest

import api_reference

PAGE = api_reference.PAGE.read_text()
TABLE = re.compile(r"<!-- names of (\S+) -->\n(.*?)<!-- end of names -->", re.DOTALL)


def test_the_page_is_current() -> None:
    assert api_reference.with_tables(PAGE) == PAGE, "out of date: run make reference"


def test_the_page_has_every_promised_module() -> None:
    assert tuple(name for name, _ in TABLE.findall(PAGE)) == api_reference.MODULES


@pytest.mark.parametrize("name", api_reference.MODULES)
def test_the_page_has_exactly_the_names_of_the_module(name) -> None:
    listed = re.findall(r"^\| `(\w+)` \|", dict(TABLE.findall(PAGE))[name], re.MULTILINE)
    module = importlib.import_module(name)
    assert sorted(listed) == sorted(module.__all__)
    assert all(hasattr(module, each) for each in module.__all__)


@pytest.mark.parametrize("name", api_reference.MODULES)
def test_every_promised_name_says_what_it_is(name) -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", dict(TABLE.findall(PAGE))[name], re.MULTILINE)
    assert [each for each, meaning in rows if len(meaning) < 5] == []


def test_importing_the_package_loads_none_of_its_modules() -> None:
    code = "import gpuscale, sys; print([each for each in sys.modules if each.startswith('gpuscale.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_name_that_the_package_does_not_have_is_an_attribute_error() -> None:
    import gpuscale

    with pytest.raises(AttributeError, match="no attribute 'decide'"):
        gpuscale.decide  # noqa: B018 - looking is what is tested
