"""The batch jobs on each GPU, as a workload manager's scripts write them into a folder.

A file is named after a GPU's number, or `<GPU>.<number of the MIG instance>`; each of its lines is a job.

Source: NVIDIA dcgm-exporter 4.8.2, internal/pkg/transformation/hpc.go. Differences: empty lines are no
    jobs, and a file that can't be read leaves the others to be served.
"""

import logging
import re
from collections.abc import Mapping
from pathlib import Path

_NAME = re.compile("[0-9]{1,6}(?:[.][0-9]{1,6})?", re.ASCII)
_MOST_FILES = 1024
_MOST_BYTES = 64 * 1024
_MOST_JOBS = 256
"""Of one GPU: each is one more set of its series."""

_log = logging.getLogger(__name__)


class JobFiles:
    """Reads the folder.

    Args:
        folder: which need not be there yet.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._told = ""

    def read(self) -> Mapping[str, tuple[str, ...]]:
        """Return GPU to its jobs; empty where the folder can't be read, which the log tells once."""
        try:
            paths = sorted(each for each in self._folder.iterdir() if _NAME.fullmatch(each.name))
        except OSError as error:
            self._tell(f"no jobs are served: {self._folder}: {error.strerror or error}")
            return {}
        self._tell("")
        return {path.name: jobs for path in paths[:_MOST_FILES] if (jobs := self._jobs(path))}

    def _jobs(self, path: Path) -> tuple[str, ...]:
        try:
            if not path.is_file():
                return ()
            with path.open("rb") as file:
                text = file.read(_MOST_BYTES).decode(errors="replace")
        except OSError as error:
            _log.debug("%s: %s", path, error.strerror or error)
            return ()
        lines = dict.fromkeys(line.strip() for line in text.splitlines())
        return tuple(line for line in lines if line)[:_MOST_JOBS]

    def _tell(self, message: str) -> None:
        if message and message != self._told:
            _log.warning("%s", message)
        self._told = message
