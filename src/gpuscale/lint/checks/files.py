"""What reading the files found."""

from gpuscale.lint.inputs import FileJudge
from gpuscale.lint.problems import FILE_CHECKS

JUDGE = FileJudge("files", FILE_CHECKS, lambda inputs: inputs.findings)
