"""Compiled functions are kept by the code of all that they call, and found again by it."""

from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any, cast

import pytest

from gpuscale.base import compiling
from gpuscale.base.errors import UsageError

SOURCE = """
SCALE = {scale}

def scaled(value):
    return value {sign} SCALE

def twice(value):
    return 2.0 * scaled(value)
"""


def twice(*, scale: float = 3.0, sign: str = "*") -> FunctionType:
    """Return a function that calls another, which uses a constant."""
    names: dict[str, object] = {"__name__": "made_for_a_test"}
    exec(SOURCE.format(scale=scale, sign=sign), names)
    return cast("FunctionType", names["twice"])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(compiling.CACHE_VARIABLE, str(tmp_path))
    return tmp_path


def compiled(function: Callable[..., Any], said: list[str]):
    signature = compiling.numba().float64(compiling.numba().float64)
    return compiling.compiled(cast("FunctionType", function), signature, said.append)


def double(value):
    return 2.0 * tripled(value)


def tripled(value):
    return 3.0 * value


def test_what_is_called_is_compiled_too_and_kept(folder):
    said: list[str] = []
    assert compiled(double, said)(1.5) == 9.0
    assert len(said) == 1
    assert str(folder) in said[0]
    assert list(folder.rglob("*.nbc"))
    again = compiled(double, said)
    assert again(2.0) == 12.0
    assert len(said) == 1
    assert sum(again.stats.cache_hits.values()) == 1


@pytest.mark.parametrize("change", [{"scale": 4.0}, {"sign": "+"}])
def test_a_change_in_what_is_called_is_another_function(change):
    assert compiling.fingerprint(twice()) == compiling.fingerprint(twice())
    assert compiling.fingerprint(twice()) != compiling.fingerprint(twice(**change))


def test_a_named_tuple_that_is_called_otherwise_makes_another_function() -> None:
    # numba keeps the types of arguments by their names, and fails to find one that was renamed or moved.
    def of(name, module):
        code = (
            "from typing import NamedTuple\n"
            f"class {name}(NamedTuple):\n    replicas: int\n"
            f"def replicas(row: {name}):\n    return row.replicas\n"
        )
        space: dict[str, Any] = {"__name__": module}
        exec(code, space)
        return compiling.fingerprint(space["replicas"])

    assert of("Row", "a.b") == of("Row", "a.b")
    assert len({of("Row", "a.b"), of("Line", "a.b"), of("Row", "a.c")}) == 3


def test_without_a_folder_to_write_to_it_is_kept_for_now(monkeypatch):
    monkeypatch.setenv(compiling.CACHE_VARIABLE, "/proc/none")
    compiling._folder_for_now.cache_clear()
    folder = compiling.cache_folder()
    assert folder.is_dir()
    assert folder == compiling.cache_folder()
    monkeypatch.delenv(compiling.CACHE_VARIABLE)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", _no_home)
    assert folder == compiling.cache_folder()
    folder.rmdir()


def _no_home():
    raise RuntimeError("Could not determine home directory.")


def test_what_numba_does_not_compile_is_named_with_its_line(folder):
    line = refused.__code__.co_firstlineno + 1
    expected = (
        r"^tests\..*refused is not in the part of Python that numba compiles: .+"
        rf"\(.*test_compiling\.py:{line}\)$"
    )
    with pytest.raises(UsageError, match=expected):
        compiled(refused, [])


def refused(value):
    return str(value).encode("utf-16")
