"""Work without GPUs and without a cluster: simulations, searches, the live loop, rehearsals."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.lab.scenarios import (
        MAX_FILE_BYTES,
        find_setup,
        load_policy,
        read_beside,
        shipped_names,
    )
else:
    __getattr__ = door(__name__)

__all__ = ["MAX_FILE_BYTES", "find_setup", "load_policy", "read_beside", "shipped_names"]
