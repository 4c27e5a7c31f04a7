"""Package doors: the names in a package's `__init__`, whose modules are loaded on first use.

A package lists its names as imports below `if TYPE_CHECKING`, for readers and type checkers, and has
`__getattr__ = door(__name__)` otherwise. So a process that enters by one name loads what is behind that name,
and not the whole room: a node agent that reads a kubeconfig never loads the API server's schemas.
"""

import ast
import sys
from collections.abc import Callable
from importlib.util import find_spec


def door(package: str) -> Callable[[str], object]:
    """Return the `__getattr__` of a package, which loads what the package's `if TYPE_CHECKING` imports.

    `dir()` of the package shows these names too, for whoever looks around in an interpreter.
    """
    modules: dict[str, str] = {}
    names = vars(sys.modules[package])
    names["__dir__"] = lambda: sorted({*names, *names["__all__"]})

    def load(name: str) -> object:
        if not modules:
            modules.update(_modules_of_names(package))
        if name not in modules:  # raised for submodules too, which the import system then looks for
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = modules[name]
        __import__(module)  # unlike import_module, it is seen by `python -X importtime`
        value: object = getattr(sys.modules[module], name)
        names[name] = value
        return value

    return load


def _modules_of_names(package: str) -> dict[str, str]:
    """Return the module of each name that a package imports for type checkers, read from its source."""
    spec = find_spec(package)
    source = spec.loader.get_source(package) if spec and spec.loader else None  # type: ignore[attr-defined]
    return {
        alias.name: each.module
        for block in ast.parse(source or "").body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for each in block.body
        if isinstance(each, ast.ImportFrom) and each.module and each.module != package
        for alias in each.names
    }
