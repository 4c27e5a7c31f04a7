"""Requests to one URL, sent on schedule whatever the server does."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.load.http.target import resolve
else:
    __getattr__ = door(__name__)

__all__ = ["resolve"]
