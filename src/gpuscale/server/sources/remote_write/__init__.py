"""Prometheus' remote write: the store's samples sent to a long-term store."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.server.sources.remote_write.sender import RemoteWriter
    from gpuscale.server.sources.remote_write.settings import RemoteWriteEndpoint, endpoint_of_url
else:
    __getattr__ = door(__name__)

__all__ = ["RemoteWriteEndpoint", "RemoteWriter", "endpoint_of_url"]
