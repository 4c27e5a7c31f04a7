"""The live page of a run or a cluster, and the port on this machine that serves it."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.server.page.addresses import only_host, openable_hosts, own_host, url_host
    from gpuscale.server.page.front import Front, PortTakenError
    from gpuscale.server.page.routes import add_page
else:
    __getattr__ = door(__name__)

__all__ = [
    "Front",
    "PortTakenError",
    "add_page",
    "only_host",
    "openable_hosts",
    "own_host",
    "url_host",
]
