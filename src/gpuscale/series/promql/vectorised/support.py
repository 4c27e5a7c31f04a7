"""Whether a query can be evaluated with numpy, and what is left to rows; this module does without numpy."""

from functools import cache
from importlib.util import find_spec

from gpuscale.series.promql import tree
from gpuscale.series.promql.tree import ValueType, value_type


@cache
def is_installed() -> bool:
    """Return whether numpy is there."""
    return find_spec("numpy") is not None


def is_vectorised(root: tree.Node) -> bool:
    """Return whether a query reads series and gives numbers at each step."""
    return value_type(root) in {ValueType.VECTOR, ValueType.SCALAR} and _reads(root)


def _reads(node: tree.Node) -> bool:
    return isinstance(node, tree.Select) or any(map(_reads, tree.children(node)))


class RowWiseError(Exception):
    """This has to be evaluated row by row: it is rare, or it fails there with an error of its own."""


class UncoveredStepsError(RowWiseError):
    """Samples that the first steps need were too old to be kept; in a range query these steps have no value.

    Args:
        from_ms: the first time that is covered.
    """

    def __init__(self, from_ms: int) -> None:
        super().__init__("samples were too old to be kept")
        self.from_ms = from_ms
