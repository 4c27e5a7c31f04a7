"""What tests with real node autoscalers need."""

import pytest

from gpuscale_testing import missing, missing_definitions
from gpuscale_testing.programs.toolset import CONTROL_PLANE


@pytest.fixture(scope="session", autouse=True)
def programs() -> None:
    """Skip where a program is not built; `make node-tools` builds them."""
    needed = [missing([*CONTROL_PLANE, "karpenter-kwok"]), missing_definitions(["karpenter"])]
    if reasons := [each for each in needed if each]:
        pytest.skip("; ".join(reasons))
