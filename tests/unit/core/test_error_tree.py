"""The tree in core/errors.py has every public error of gpuscale, under its base and with its module."""

import importlib
import pkgutil
import re

import gpuscale
from gpuscale.base import errors

LINE = re.compile(r"^(?P<indent>[│ ]*)[├└]── (?P<name>\w+) +(?P<about>.*)$", re.MULTILINE)


def drawn():
    """Return (name, base, module) of each line; the errors of the module itself have a meaning instead."""
    above = ["GpuscaleError"]
    for line in LINE.finditer(errors.__doc__):
        depth = len(line["indent"]) // 4 + 1
        name, module = line["name"], f"gpuscale.{line['about']}"
        yield name, above[depth - 1], errors.__name__ if hasattr(errors, name) else module
        above[depth:] = [name]


def defined(base):
    for error in base.__subclasses__():
        if error.__module__.startswith("gpuscale.") and not error.__name__.startswith("_"):
            yield error.__name__, base.__name__, error.__module__
            yield from defined(error)


def test_the_tree_has_every_error_under_its_base() -> None:
    for module in pkgutil.walk_packages(gpuscale.__path__, "gpuscale."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    assert sorted(drawn()) == sorted(defined(errors.GpuscaleError))
