from gpuscale.series.promql import tree
from gpuscale.series.promql.functions import functions


def test_the_tree_knows_which_functions_give_a_scalar() -> None:
    assert frozenset(functions.SCALAR_FUNCTIONS) == tree.SCALAR_FUNCTIONS
