"""A learned quantile of the highest demand until what is ordered now is ready.

It is linear in what is known now: demand, its recent heights and mean, and what the same time of yesterday
and of a week ago came to. Its weights follow the slope of the quantile's loss with each new outcome
(Koenker and Bassett 1978, by stochastic descent), so that a share of the outcomes is below. Outcomes are of
the past, so nothing is learned from what is still to come.
"""

from gpuscale.triggers.policies.policy import Numbers

FEATURES = 7
_QUANTILE = 0.9
_PACE = 0.005
"""Share of the mean demand that one outcome moves the prediction by, at the most."""
PLACES = 256
"""Steps of features that are remembered: start-up time and lag at the most."""
LEARNED_SIZE = FEATURES * (1 + PLACES)


def predicted(memory: Numbers, first: int, step: int) -> float:
    """Return the prediction from the features of a step."""
    row = first + FEATURES * (1 + step % PLACES)
    value = 0.0
    for at in range(FEATURES):
        value += memory[first + at] * memory[row + at]
    return value


def learn(memory: Numbers, first: int, step: int, outcome: float, scale: float) -> None:
    """Move the weights by what came of a step.

    Args:
        memory: the policy's.
        first: where the weights and the features of PLACES steps begin.
        step: whose features made the prediction.
        outcome: the highest demand after it.
        scale: of demand, such as its mean.
    """
    row = first + FEATURES * (1 + step % PLACES)
    size = 0.0
    for at in range(FEATURES):
        size += memory[row + at] ** 2
    slope = _QUANTILE if outcome > predicted(memory, first, step) else _QUANTILE - 1
    if size > 0:
        for at in range(FEATURES):
            memory[first + at] += _PACE * scale * slope * memory[row + at] / size
