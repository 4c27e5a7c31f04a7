"""The batch jobs on each GPU, as a workload manager's scripts write them into a folder.

A file is named after a GPU's number, or `<GPU>.<number of the MIG instance>`; each of its lines is a job.
Only the files of GPUs that are there are opened: how many others the folder holds does not matter.

Source: NVIDIA dcgm-exporter 4.8.2, internal/pkg/transformation/hpc.go. Differences: empty lines are no
    jobs, and a file that can't be read leaves the others to be served.
"""

import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

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
        self._logged = ""

    def read(self, names: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
        """Return file name to its jobs; empty where the folder can't be read, which is logged once.

        Args:
            names: of the files of this node's GPUs.
        """
        try:
            os.scandir(self._folder).close()
        except OSError as error:
            self._log_once(f"no jobs are served: {self._folder}: {error.strerror or error}")
            return {}
        self._log_once("")
        return {name: jobs for name in names if (jobs := self._jobs(self._folder / name))}

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

    def _log_once(self, message: str) -> None:
        if message and message != self._logged:
            _log.warning("%s", message)
        self._logged = message
