"""The links to all other replicas, which come and go."""

import asyncio
from collections.abc import Callable, Iterable

from gpuscale.sources.feeds.sharing.link import PeerLink


class PeerLinks:
    """One link for each address of a list.

    Args:
        make: returns the link to an address.
    """

    def __init__(self, make: Callable[[str], PeerLink]) -> None:
        self._make = make
        self._links: dict[str, PeerLink] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None

    @property
    def all(self) -> tuple[PeerLink, ...]:
        """Return the links, that to this replica's own address among them."""
        return tuple(self._links.values())

    def change(self, urls: Iterable[str]) -> None:
        """Have links to these addresses, and no others."""
        wanted = dict.fromkeys(urls)
        for url in self._links.keys() - wanted.keys():
            link = self._links.pop(url)
            if (task := self._tasks.pop(url, None)) is not None:
                task.cancel()
            link.close()
        for url in wanted:
            if url not in self._links:
                self._links[url] = self._make(url)
                self._start(url)

    def run(self, group: asyncio.TaskGroup) -> None:
        """Follow all that there are and that come later, in tasks of a group."""
        self._group = group
        for url in self._links:
            self._start(url)

    def _start(self, url: str) -> None:
        if self._group is not None:
            running = self._links[url].run()
            self._tasks[url] = self._group.create_task(running, name=f"replica {url}")
