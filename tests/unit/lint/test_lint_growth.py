"""What lint does grows with the files, and not with its square."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from growing_files import GROWING

from gpuscale.ops.lint.linting import lint
from growing import SIZES, steps_per_pair


@pytest.mark.parametrize(("check", "files"), GROWING)
def test_work_grows_with_the_number_of_things(check, files) -> None:
    assert check in {each.check.id for each in lint(files(SIZES[0])).findings}

    def prepare(size):
        texts = files(size)
        return lambda: lint(texts)

    assert steps_per_pair(prepare) < 1
