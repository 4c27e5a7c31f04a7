"""What judges files."""

from gpuscale.core.findings import Judge
from gpuscale.lint.findings import Place
from gpuscale.lint.inputs import Inputs


class FileJudge(Judge[Inputs, Place]):
    """A judge of `gpuscale lint`. It gets what the files hold, read."""

    __slots__ = ()
