"""What a wheel of a part of gpuscale holds: what some modules import, in functions too, and nothing else.

Imports for types alone don't count. Data files go with the package that they lie in.
"""

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
_OF_SOURCE = frozenset({".py", ".pyc", ".pyi", ".md"})


def modules_of(roots: Sequence[str], left_out: Sequence[str]) -> frozenset[str]:
    """Return the modules that the roots import, and the packages that these are in, by their names.

    Args:
        roots: names of modules.
        left_out: modules that are imported only after a look whether they are installed.
    """
    found: set[str] = set()
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        file = file_of(name)
        if name in found or name in left_out or file is None:
            continue
        found.add(name)
        waiting += (name.rpartition(".")[0], *imports(ast.parse(file.read_text(encoding="utf-8"))))
    return frozenset(found)


def file_of(module: str) -> Path | None:
    """Return the file of a module or package of gpuscale; None where there is none."""
    path = SOURCE.joinpath(*module.split("."))
    files = (path.with_suffix(".py"), path / "__init__.py")
    return next((each for each in files if each.is_file()), None)


def files_of(modules: frozenset[str]) -> Iterator[Path]:
    """Yield the files of modules, and the data files beside those of packages."""
    for module in sorted(modules):
        file = file_of(module)
        if file is None:
            continue
        yield file
        if file.name == "__init__.py":
            yield from (each for each in file.parent.iterdir() if _is_data(each))


def _is_data(path: Path) -> bool:
    return path.is_file() and path.suffix not in _OF_SOURCE


def imports(node: ast.AST) -> Iterator[str]:
    """Yield the names that code imports, in functions too; of `from x import y` both x and x.y."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                continue
            case ast.ImportFrom(module=str(module), names=names):
                yield module
                yield from (f"{module}.{each.name}" for each in names)
            case ast.Import(names=names):
                yield from (each.name for each in names)
            case _:
                yield from imports(child)
