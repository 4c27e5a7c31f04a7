"""Rehearsals as a command, ended as soon as they have shown what a test asks for."""

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path

from terminal import wait_for_text

SCENARIOS = Path(__file__).parent.parent / "data" / "rehearsals"
LAST_S = 200.0
"""Until the last change of a scenario; on two idle cores it comes within 115 s."""


def command(plane, *arguments):
    rehearse = [sys.executable, "-m", "gpuscale.cli.main", "rehearse"]
    return [*rehearse, f"--kubeconfig={plane.admin}", *map(str, arguments)]


def rehearse(plane, scenario, *, until, times=1):
    """Return the document of a rehearsal that is interrupted after its last change."""
    path = SCENARIOS / f"{scenario}.yaml"
    arguments = command(plane, "--output=json", path)
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        lines = []
        reader = threading.Thread(
            target=lambda: lines.extend(iter(process.stderr.readline, "")), daemon=True
        )
        reader.start()
        try:
            wait_for_text(process, lambda: "".join(tuple(lines)), until, times, LAST_S)
            process.send_signal(signal.SIGINT)
            output = process.stdout.read()
            assert process.wait(120) == 0, "".join(lines)
        finally:
            process.kill()
            reader.join(30)
    return json.loads(output)
