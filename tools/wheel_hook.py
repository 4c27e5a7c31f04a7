"""The hook of hatchling by which the wheels of the agent and of the servers hold their part of gpuscale.

[tool.hatch.build.targets.wheel.hooks.custom]
path = "../../tools/wheel_hook.py"
roots = ["gpuscale.cli.main"]                # see `wheel_part.modules_of`
leave-out = ["gpuscale.cli.servers.serving"]
"""

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).parent))

from wheel_part import SOURCE, files_of, modules_of


class WheelPart(BuildHookInterface[Any]):  # type: ignore[misc]  # hatchling is there where a wheel is built
    """Chooses the files of the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Have the wheel hold what its roots need."""
        modules = modules_of(self.config["roots"], self.config["leave-out"])
        build_data["force_include"] |= {
            str(file): str(file.relative_to(SOURCE)) for file in files_of(modules)
        }
