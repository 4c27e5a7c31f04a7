"""Whether a query can be evaluated with numpy, or must be evaluated row by row."""

from functools import cache
from importlib.util import find_spec

from gpuscale.series.promql import tree
from gpuscale.series.promql.tree import ValueType, value_type


@cache
def is_installed() -> bool:
    """Return whether numpy is installed."""
    return find_spec("numpy") is not None


def is_vectorised(root: tree.Node) -> bool:
    """Return whether a query reads series and returns numbers at each step."""
    return value_type(root) in {ValueType.VECTOR, ValueType.SCALAR} and _reads(root)


def _reads(node: tree.Node) -> bool:
    return isinstance(node, tree.Select) or any(map(_reads, tree.children(node)))


class RowWiseError(Exception):
    """Evaluation row by row is needed: the query is rare, or fails there with its own error."""


class UncoveredStepsError(RowWiseError):
    """The first steps need samples too old to be kept; in a range query these steps have no value.

    Args:
        from_ms: the first time that is covered.
    """

    def __init__(self, from_ms: int) -> None:
        super().__init__("samples were too old to be kept")
        self.from_ms = from_ms
