"""Looks at the GPUs behind metrics pages: node agents or exporters by their URLs, without a cluster."""

from collections.abc import Sequence

from yarl import URL

from gpuscale.base.clock import Clock
from gpuscale.base.errors import GpuscaleError, UnavailableError
from gpuscale.base.exposition.parse import parse_text
from gpuscale.ops.doctor.direct import at_once, fetch
from gpuscale.ops.top.gpu_rows import gpu_rows, samples_of
from gpuscale.ops.top.picture import GpuRow, Picture
from gpuscale.server.sources.http import SourceAccess

_METRICS = "/metrics"


class PageReader:
    """Takes pictures of what metrics pages say.

    Args:
        urls: of the pages; one without a path means `/metrics`.
        clock: for times.
        access: what requests carry.
    """

    def __init__(
        self, urls: Sequence[str], clock: Clock, access: SourceAccess | None = None
    ) -> None:
        self._urls = urls
        self._clock = clock
        self._access = access

    async def look(self) -> Picture:
        """Return the GPUs of all pages; a page that can't be read is said to be so.

        Raises:
            UnavailableError: none can be read.
        """
        found = await at_once(self._page(url) for url in self._urls)
        if not any(rows for rows, _ in found):
            raise UnavailableError("; ".join(fault for _, fault in found))
        return Picture(
            at_ms=self._clock.now_ms(),
            source=", ".join(self._urls),
            gpus=tuple(row for rows, _ in found for row in rows),
            unseen=tuple(fault for _, fault in found if fault),
        )

    async def _page(self, url: str) -> tuple[tuple[GpuRow, ...], str]:
        path = _METRICS if URL(url).path in ("", "/") else ""
        try:
            text = await fetch(url, path, access=self._access)
            families = {family.name: family for family in parse_text(text, source=url)}
        except GpuscaleError as error:
            return (), str(error)
        rows = gpu_rows(samples_of(families))
        return rows, "" if rows else f"{url}: no series of DCGM's names"
