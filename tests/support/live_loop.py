"""A running `gpuscale up`."""

import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

GPUSCALE = Path(sys.executable).parent / "gpuscale"


class Loop:
    """A running `gpuscale up` and what it has printed so far."""

    def __init__(self, tmp_path: Path, *arguments: str) -> None:
        self.output = tmp_path / "out.txt"
        self.started = time.monotonic()
        with self.output.open("w") as out:
            self.process = subprocess.Popen(
                [GPUSCALE, "up", *arguments, "--port", "0"], stdout=out, stderr=subprocess.STDOUT
            )
        self.url = self.wait(r"page +(http://127\.0\.0\.1:\d+)/", 30)[1]
        self.seconds_to_page = time.monotonic() - self.started

    def text(self) -> str:
        """Return what was printed."""
        return self.output.read_text()

    def wait(self, pattern: str, seconds: float) -> "re.Match[str]":
        """Return what matches in the text, once it does."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            match = re.search(pattern, self.text())
            if match:
                return match
            assert self.process.poll() is None, self.text()
            time.sleep(0.05)
        raise AssertionError(f"no {pattern!r} within {seconds} s in:\n{self.text()}")

    def get(self, path: str) -> str:
        """Return the text at a path."""
        with urllib.request.urlopen(self.url + path, timeout=30) as response:
            return str(response.read().decode())

    def json(self, path: str) -> Any:
        """Return the document at a path."""
        return json.loads(self.get(path))

    def post(self, path: str, body: object) -> Any:
        """Send a document, and return the answer."""
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), method="POST")
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.loads(response.read())

    def stop(self, number: int = signal.SIGINT) -> int:
        """Send a signal, and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(60)

    def kill(self) -> None:
        """End it, however it is."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
