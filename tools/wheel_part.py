"""What a wheel of a part of gpuscale holds: what some modules import, in functions too, and nothing else.

Imports for types alone don't count; of a door (`gpuscale.base.doors`) the modules of the names that are
imported from it do. Data files go with the package that they lie in.
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
        if name in found or name in left_out:
            continue
        if file is None:
            waiting += _behind_door(*name.rpartition(".")[::2])
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


def _behind_door(package: str, name: str) -> Iterator[str]:
    """Yield the module that a package's door loads for a name, where it has one."""
    file = file_of(package)
    for node in [] if file is None else ast.parse(file.read_text(encoding="utf-8")).body:
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), body=body, orelse=[_, *_]):
                for each in body:
                    match each:
                        case ast.ImportFrom(module=str(module), names=names):
                            yield from (module for alias in names if alias.name == name)


def _is_data(path: Path) -> bool:
    return path.is_file() and path.suffix not in _OF_SOURCE


def imports(node: ast.AST) -> Iterator[str]:
    """Yield the names that code imports, in functions too; of `from x import y` both x and x.y."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), orelse=orelse):
                for each in orelse:
                    yield from imports(each)
            case ast.ImportFrom(module=str(module), names=names):
                yield module
                yield from (f"{module}.{each.name}" for each in names)
            case ast.Import(names=names):
                yield from (each.name for each in names)
            case _:
                yield from imports(child)
