"""The responses to scrapes and probes until the next collect.

Families are made, and a format is rendered, when the first scrape or subscriber asks for them, and kept for
all others of the same tick. An agent collects every second, and a Prometheus asks every 15 s or a minute.
"""

import gzip
from collections.abc import Callable
from functools import cached_property
from typing import Literal

from gpuscale.agent.exporter.families.own_metrics import CollectStatus
from gpuscale.base.exposition.families import Family
from gpuscale.base.exposition.openmetrics import render_openmetrics
from gpuscale.base.exposition.write import render_text, six_decimals

Format = Literal["text", "openmetrics"]


class TickSnapshot:
    """The families of one collect, rendered on demand.

    Args:
        devices: makes the families of GPUs and of their containers.
        own: makes those in which the exporter reports on itself.
        status: how collecting goes.
        measured_ms: when the oldest of the devices' values was measured.
    """

    def __init__(
        self,
        devices: Callable[[], tuple[Family, ...]],
        own: Callable[[], tuple[Family, ...]],
        status: CollectStatus,
        measured_ms: int = 0,
    ) -> None:
        self._make_devices = devices
        self._make_own = own
        self.status = status
        self.measured_ms = measured_ms
        self._bodies: dict[tuple[Format, bool], bytes] = {}

    @cached_property
    def devices(self) -> tuple[Family, ...]:
        return self._make_devices()

    @cached_property
    def own(self) -> tuple[Family, ...]:
        return self._make_own()

    @property
    def text(self) -> bytes:
        return self.body("text", is_compressed=False)

    def body(self, format_: Format, *, is_compressed: bool) -> bytes:
        key = format_, is_compressed
        if key not in self._bodies:
            self._bodies[key] = self._made(format_, is_compressed=is_compressed)
        return self._bodies[key]

    def _made(self, format_: Format, *, is_compressed: bool) -> bytes:
        if is_compressed:
            return gzip.compress(self.body(format_, is_compressed=False), compresslevel=1)
        render = render_text if format_ == "text" else render_openmetrics
        return render((*self.devices, *self.own), float_text=six_decimals).encode()
