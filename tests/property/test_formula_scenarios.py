# mypy: disable-error-code="index"
"""What GPUs read comes to the same document by formula as through text, store and PromQL, to the byte."""

import json

from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from drawn_scenarios import drawn_setup
from examples import at_most
from gpuscale.lab.sim.formula.reasons import why_not
from gpuscale.lab.sim.simulation import simulate


# A smaller number is another scenario, not a smaller one.
@settings(at_most(60), phases=[Phase.explicit, Phase.generate])
@given(st.integers(0, 2**32))
def test_a_drawn_scenario_is_the_same_by_formula(number: int) -> None:
    setup = drawn_setup(number)
    assume(not why_not(setup))
    by_formula, through_pipeline = simulate(setup), simulate(setup, through_pipeline=True)
    # What a failing query says may hang on the order of rows, so such a run is one through the pipeline.
    assume(by_formula.pop("fidelity")["used"] == "formula")
    assert through_pipeline.pop("fidelity")["used"] == "pipeline"
    # Objects first: what differs is shown.
    assert by_formula == through_pipeline
    assert json.dumps(by_formula) == json.dumps(through_pipeline)
