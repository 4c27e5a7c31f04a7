"""Compiling plain functions with numba, which only this module imports, and caching the results on disk.

numba calls compiled functions only, so each plain function that another calls is compiled too, and linked
into a copy of the caller. What is kept on disk is found by the code of all of them and by the constants that
they use: numba itself looks at the caller's file alone, and would take what calls an older state of another.
"""

import atexit
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from gpuscale.base.errors import UsageError

CACHE_VARIABLE = "GPUSCALE_COMPILED"
"""Names the folder in which compiled functions are kept, in place of one in the user's cache."""
Compiled = Callable[..., Any]


@cache
def numba() -> Any:  # noqa: ANN401 - a module without types
    """Return the module numba, or None where it is not installed."""
    try:
        import numba as module
    except ModuleNotFoundError:
        return None
    return module


def compiled(
    function: FunctionType,
    signature: Any,  # noqa: ANN401 - one of numba's types, or None
    say: Callable[[str], None],
) -> Compiled:
    """Return a function compiled for one signature; numba has to be installed.

    Args: function: in the part of Python that numba compiles, as is all that it calls. signature: of its
        arguments and its result; None compiles it when it is first called, for what it gets. say: gets a
        line where nothing is on the disk yet, since compiling takes seconds.

    Raises:
        UsageError: numba does not compile it; with numba's reason.
    """
    folder = cache_folder() / fingerprint(function)
    if not any(folder.rglob("*.nbc")):
        say(f"compiling {function.__module__}, once; it is kept in {folder}")
    config = numba().config
    before = config.CACHE_DIR
    config.CACHE_DIR = str(folder)
    try:
        result: Compiled = _linked(function, {}, signature)
    except numba().core.errors.NumbaError as error:
        name = f"{function.__module__}.{function.__qualname__}"
        raise UsageError(
            f"{name} is not in the part of Python that numba compiles: {_reason(str(error))}"
        ) from None
    finally:
        config.CACHE_DIR = before
    return result


def _reason(text: str) -> str:
    """Return why numba refuses a function, with file and line, extracted from its long message."""
    lines = [line.strip() for line in text.splitlines()]
    reason = next(
        (line for line in lines if line and not line.startswith("Failed in ")), "no reason"
    )
    places = re.findall(r'File "([^"]+)", line (\d+)', text)
    return reason + (f" ({places[-1][0]}:{places[-1][1]})" if places else "")


def _linked(
    function: FunctionType,
    done: dict[FunctionType, Compiled],
    *signature: Any,  # noqa: ANN401 - one of numba's types, or none
) -> Compiled:
    names = dict(function.__globals__)
    for name, callee in _callees(function):
        if callee not in done:
            done[callee] = _linked(callee, done)
        names[name] = done[callee]
    copy = FunctionType(function.__code__, names, function.__name__, function.__defaults__)
    copy.__module__, copy.__qualname__ = function.__module__, function.__qualname__
    result: Compiled = numba().njit(*signature, cache=True, nogil=True)(copy)
    return result


def _callees(function: FunctionType) -> Iterator[tuple[str, FunctionType]]:
    """Yield the plain functions of its module that a function refers to."""
    for name in function.__code__.co_names:
        found = function.__globals__.get(name)
        if isinstance(found, FunctionType):
            yield name, found


def fingerprint(function: FunctionType) -> str:
    """Return a hash over a function's code, the functions it calls, and their constants.

    The named tuples that their modules know belong to it: numba keeps those of the arguments by their names,
    and fails where a kept one is called otherwise by now.
    """
    digest = hashlib.sha256()
    seen: set[FunctionType] = set()
    waiting = [function]
    while waiting:
        each = waiting.pop()
        if each in seen:
            continue
        seen.add(each)
        digest.update(repr((each.__module__, each.__qualname__, each.__defaults__)).encode())
        _add_code(digest.update, each.__code__)
        digest.update(repr(sorted(_named_tuples(each))).encode())
        for name in each.__code__.co_names:
            value = each.__globals__.get(name)
            if isinstance(value, FunctionType):
                waiting.append(value)
            elif isinstance(value, int | float | str | tuple):
                digest.update(repr((name, value)).encode())
    return digest.hexdigest()[:16]


def _named_tuples(function: FunctionType) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    for value in function.__globals__.values():
        if isinstance(value, type) and issubclass(value, tuple) and hasattr(value, "_fields"):
            yield value.__module__, value.__qualname__, value._fields


def _add_code(update: Callable[[bytes], None], code: CodeType) -> None:
    update(code.co_code)
    update(repr((code.co_names, code.co_varnames)).encode())
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _add_code(update, constant)
        else:
            update(repr(constant).encode())


def cache_folder() -> Path:
    """Return the cache folder of compiled functions; a temporary one if none is writable."""
    try:
        folder = _wanted_folder()
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except (OSError, RuntimeError):  # pathlib raises the latter for a user without a home directory
        pass
    return _folder_for_now()


def _wanted_folder() -> Path:
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen)
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "gpuscale" / "compiled"


@cache
def _folder_for_now() -> Path:
    folder = tempfile.mkdtemp(prefix="gpuscale-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ[CACHE_VARIABLE] = folder  # worker processes included
    return Path(folder)
