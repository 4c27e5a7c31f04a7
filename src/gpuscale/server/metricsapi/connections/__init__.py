"""The connections of the metrics API server: accepted, bounded, timed, read and written.

asyncio's own TLS holds a buffer of 256 KiB for each connection, and aiohttp bounds neither how many
connections there are nor how long a header may take. Anyone who reaches the port can open a connection, so
here each one is cheap, has deadlines, and gives way to others when there are too many.
"""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.server.metricsapi.connections.connection import Connection
    from gpuscale.server.metricsapi.connections.counted_log import CountedLog
    from gpuscale.server.metricsapi.connections.http import without_server
    from gpuscale.server.metricsapi.connections.lobby import ConnectionLimits
    from gpuscale.server.metricsapi.connections.port import Port
else:
    __getattr__ = door(__name__)

__all__ = ["Connection", "ConnectionLimits", "CountedLog", "Port", "without_server"]
