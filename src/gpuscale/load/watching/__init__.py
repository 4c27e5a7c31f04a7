"""Watching a cluster under load: HPA, pods, nodes, events; or a running `up`."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.load.watching.notes import Watched
    from gpuscale.load.watching.process import WatchedHpa, WatchedUp, watching
else:
    __getattr__ = door(__name__)

__all__ = ["Watched", "WatchedHpa", "WatchedUp", "watching"]
