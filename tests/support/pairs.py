"""Combinations of options in which every pair of values stands together at least once."""

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Choice = dict[str, Any]
TRIES = 15
"""Completions of a pair: more give fewer choices, and take longer to find."""


def pairwise(
    options: Mapping[str, Sequence[Any]], is_allowed: Callable[[Choice], bool], seed: int = 1
) -> Iterator[Choice]:
    """Yield choices that cover all pairs of values that can stand together.

    Each choice starts from a pair that is not covered yet. Of some random completions that are allowed, the
    one that covers most is taken; a pair without one is passed over.

    Args:
        options: the values of each option.
        is_allowed: says whether a choice of all options is one.
        seed: of the completions.
    """
    chosen = random.Random(seed)
    left = {
        ((a, i), (b, j))
        for a, b in itertools.combinations(options, 2)
        for i in range(len(options[a]))
        for j in range(len(options[b]))
    }
    while left:
        pair = min(left)
        best: tuple[int, dict[str, int]] | None = None
        for _ in range(TRIES):
            made = {name: chosen.randrange(len(values)) for name, values in options.items()}
            made.update(pair)
            covered = len(left & _pairs(made))
            if best is not None and covered <= best[0]:
                continue  # whether it is allowed need not be known, which is what takes the time
            if is_allowed({name: options[name][index] for name, index in made.items()}):
                best = covered, made
        left.discard(pair)
        if best is not None:
            left -= _pairs(best[1])
            yield {name: options[name][index] for name, index in best[1].items()}


def _pairs(made: Mapping[str, int]) -> set[tuple[tuple[str, int], tuple[str, int]]]:
    return set(itertools.combinations(made.items(), 2))
