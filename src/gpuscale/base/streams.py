"""Named random streams: one seed gives every part its own independent numbers.

Adding a draw in one part leaves the numbers of all others as they were, so a change of the model does
not reshuffle a whole run. Nothing else of a run touches `random`.
"""

import hashlib
import random


def stream(seed: int, *names: str) -> random.Random:
    """Return the generator of the part called `names` in a run with this seed."""
    text = "\x00".join((str(seed), *names))
    digest = hashlib.sha256(text.encode()).digest()
    return random.Random(int.from_bytes(digest[:8], "big"))  # noqa: S311 - simulation, no secrets


def name_suffix(seed: int, *names: str, length: int = 5) -> str:
    """Return the random tail of a generated object name, in the alphabet that Kubernetes uses.

    Source: k8s.io/apimachinery/pkg/util/rand (no vowels, no look-alikes).
    """
    return "".join(stream(seed, *names).choices("bcdfghjklmnpqrstvwxz2456789", k=length))
