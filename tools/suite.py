"""Runs pytest, and the few tests that failed once more, by themselves.

Tests drive real servers, browsers and control planes that have seconds to answer. Beside other workers on
two busy cores one of thousands may miss its time. A test counts as failed if it fails a second time, with
the machine to itself; one that passes then is named, so that it gets mended. More than a few modules
with failures are no bad luck: then nothing runs again.

    python tools/suite.py -n 4 --dist loadgroup -m "not cluster"
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

MODULES_LIMIT = 4
"""In more modules than these, failures are not looked at again."""
_GROUP = re.compile(r"@[^@\]]*$")
"""Parameters may hold an @ too, but inside brackets."""
_TESTS_FAILED = 1
"""pytest's exit code when tests ran and some failed; the others mean that it could not run them."""


def main(arguments: Sequence[str], root: Path) -> int:
    """Return pytest's exit code: of the first run, or of the second where there is one."""
    record = root / ".pytest_cache" / "v" / "cache" / "lastfailed"
    record.unlink(missing_ok=True)
    code = _pytest(arguments, root)
    failed = _without_groups(record)
    modules = {name.partition("::")[0] for name in failed}
    if code != _TESTS_FAILED or not failed or len(modules) > MODULES_LIMIT:
        return code
    print(f"\n{len(failed)} failed; running them again, one after another", flush=True)
    again = ("-n", "0", "--last-failed", "--last-failed-no-failures", "none")
    # The report of the few would be written over that of all.
    kept = [each for each in arguments if not each.startswith("--junitxml=")]
    code = _pytest((*kept, *again), root)
    for name in sorted(failed - _without_groups(record)):
        print(f"failed beside others, and passed by itself: {name}", flush=True)
    return code


def _pytest(arguments: Sequence[str], root: Path) -> int:
    command = [sys.executable, "-m", "pytest", *arguments]
    environment = dict(os.environ)
    # Tests start our commands a thousand times; without byte code each start compiles every module again.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return subprocess.run(command, cwd=root, env=environment, check=False).returncode


def _without_groups(record: Path) -> set[str]:
    """Return the tests in pytest's record of failures, after mending what pytest-xdist does to their names.

    With `--dist loadgroup` it puts `@GROUP` behind them, and `--last-failed` finds none of those.
    """
    if not record.exists():
        return set()
    names = {_GROUP.sub("", name) for name in json.loads(record.read_text())}
    record.write_text(json.dumps(dict.fromkeys(sorted(names), True)))
    return names


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path.cwd()))
