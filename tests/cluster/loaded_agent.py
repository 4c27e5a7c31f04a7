# mypy: disable-error-code="assignment, misc"
"""The node agent's own command with the stand-in for NVML: GPUs are busy while somebody touches a file.

Usage: loaded_agent.py FILE UUID,UUID,... exporter FLAGS; the file holds the UUIDs of those that are busy.
"""

import sys
from pathlib import Path

from gpuscale.testing.nvml import FakeGpu, FakeNvml

QUIET_PERCENT, BUSY_PERCENT = 40, 100
LASTS_S = 2.0
"""How long a GPU stays busy after the file was touched."""


def busy_percent(file, uuid, now_us):
    try:
        is_meant, touched_s = uuid in file.read_text().split(), file.stat().st_mtime
    except OSError:
        return QUIET_PERCENT
    return BUSY_PERCENT if is_meant and now_us / 1e6 - touched_s < LASTS_S else QUIET_PERCENT


def main() -> None:
    file, uuids = Path(sys.argv[1]), sys.argv[2].split(",")
    sys.modules["pynvml"] = FakeNvml(
        [
            FakeGpu(
                uuid=uuid,
                bus=number,
                busy_percent=lambda now_us, uuid=uuid: busy_percent(file, uuid, now_us),
            )
            for number, uuid in enumerate(uuids, 1)
        ]
    )
    from gpuscale.cli.main import main as command

    sys.argv = ["gpuscale", *sys.argv[3:]]
    command()


if __name__ == "__main__":
    main()
