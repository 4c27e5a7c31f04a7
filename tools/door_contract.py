"""A contract for import-linter: other houses come by a room's door, and a door offers what others ask for."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class DoorContract(Contract):
    """Each import across houses is one of a package, of a name in its `__all__`; each such name is asked for.

    Options of the contract: `root`, the package of the houses; `open`, houses that are entered by their
    modules; `promised`, packages whose names are there for users, whoever else asks for them.
    """

    root = fields.StringField()
    open: Any = fields.SetField(subfield=fields.StringField(), required=False, default=set())
    promised: Any = fields.SetField(subfield=fields.StringField(), required=False, default=set())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Read all modules of the root, and compare what they import with what the packages offer."""
        root = str(self.root)
        modules = sorted(each for each in graph.modules if not graph.is_module_squashed(each))
        packages = {each for each in modules if graph.find_children(each)}
        sources = {each: _source(each, each in packages) for each in modules}
        rooms = {each for each in packages if _house(each, root)}
        offers = {each: _all_of(sources[each]) for each in rooms}
        asked: dict[str, set[str]] = defaultdict(set)
        faults = []
        for module, tree in sources.items():
            for line, where, name in _imports(tree):
                house = _house(where, root)
                if house in {_house(module, root), *self.open} or f"{root}.{house}" not in rooms:
                    continue
                asked[where].add(name)
                if name not in offers.get(where, ()):
                    faults.append(f"{module}:{line} imports {name} of {where}, no name of its door")
        for room, names in sorted(offers.items()):
            if _house(room, root) in self.open or room in self.promised:
                continue
            unasked = sorted(names - asked[room])
            faults += [f"{room} offers {name}, which no other house imports" for name in unasked]
        return ContractCheck(kept=not faults, metadata={"faults": faults})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print a line for each import and each name that the contract does not have."""
        for fault in check.metadata["faults"]:
            output.print_error(fault)


def _house(module: str, root: str) -> str | None:
    """Return the house of a module; None of the root, and of what is outside it."""
    return module.split(".")[root.count(".") + 1] if module.startswith(f"{root}.") else None


def _source(module: str, is_package: bool) -> ast.Module:
    path = "/".join(module.split(".")) + ("/__init__.py" if is_package else ".py")
    found = (Path(each, path) for each in ("src", "packages/gpuscale-testing/src"))
    return ast.parse(next(each for each in found if each.exists()).read_text())


def _imports(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Yield line, module and name of each `from ... import`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.lineno, node.module, alias.name) for alias in node.names)


def _all_of(tree: ast.Module) -> set[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return set()
