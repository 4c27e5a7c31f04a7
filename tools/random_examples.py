"""Runs all property tests with random examples, in rounds, until the time is over or a round fails.

`make test` has the same examples everywhere, so that a change is not refused for one that it has nothing to
do with. This looks for others. Each round has a seed of its own, which brings a failed one back.

    python tools/random_examples.py 10                     at least ten minutes, on all cores
    python tools/random_examples.py 10 -n 2 tests/unit     the options of pytest, for all rounds
    python tools/random_examples.py 0 --hypothesis-seed 7  one round, with this seed
"""

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

_OPTIONS = ("-m", "hypothesis", "--hypothesis-profile", "random", "--dist", "loadgroup", "-q")
_PATIENCE_S = 900
"""For one test: an example that fails is made smaller, on cores that are all busy."""
_SEED = "--hypothesis-seed"


def main(arguments: Sequence[str], root: Path) -> int:
    """Return pytest's exit code of the last round."""
    minutes, *more = arguments
    if not any(Path(each).exists() for each in more):
        # Collecting all tests takes a worker longer than these tests do.
        files = sorted((root / "tests").rglob("test_*.py"))
        more += [str(each.relative_to(root)) for each in files if "hypothesis" in each.read_text()]
    until_s = time.monotonic() + 60 * float(minutes)
    rounds = 0
    while True:
        rounds += 1
        seed = secrets.randbelow(1 << 32)
        given = [] if _SEED in more else [_SEED, str(seed)]
        print(f"round {rounds}: {' '.join(given or arguments[1:])}", flush=True)
        workers = ("-n", str(os.cpu_count()), "--timeout", str(_PATIENCE_S))
        command = [sys.executable, "-m", "pytest", *_OPTIONS, *workers, *given, *more]
        code = subprocess.run(command, cwd=root, check=False).returncode
        if code:
            print(
                f"round {rounds} failed. Make each example that it found a fixed one (@example), mend what "
                f"it found, and repeat the round: {sys.executable} {' '.join(sys.argv[:1])} 0 "
                f"{' '.join([*given, *arguments[1:]])}"
            )
            return code
        if time.monotonic() >= until_s:
            print(f"{rounds} rounds, nothing found")
            return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path.cwd()))
