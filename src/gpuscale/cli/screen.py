"""What `gpuscale up` prints: addresses, each event as a line, and on a terminal a short live table."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TextIO

from gpuscale.views.terminal import event_line, state_text

QUIET = ("SuccessfulCreate", "SuccessfulDelete", "ScalingReplicaSet", "Started", "Killing")
"""Steps between others; the page lists them, the terminal shows what they lead to."""
_REFRESH_S = 0.5


class Screen:
    """A terminal, or a plain stream of lines where there is none."""

    def __init__(self, out: TextIO) -> None:
        from rich.console import Console

        self._out = out
        self._console = Console(file=out)
        self._announced = False
        self._early: list[Mapping[str, object]] = []

    def announce(
        self, name: str, description: str, speed: float, addresses: Mapping[str, object]
    ) -> None:
        """Say what runs and where it can be looked at."""
        self._line(f"gpuscale: scenario {name}, {speed:g} times as fast as real time")
        self._console.print(description, highlight=False, markup=False)
        self._line("")
        self._line(f"  page            {addresses['page']}")
        server = addresses["prometheus"]
        listing = "/apis/custom.metrics.k8s.io/v1beta1"
        self._line(f"  Prometheus API  {server}/api/v1/query?query=DCGM_FI_DEV_GPU_UTIL")
        self._line(f"  metrics API     kubectl --server={server} get --raw {listing}")
        agents = addresses["nodeAgents"]
        if isinstance(agents, Mapping):
            for node, url in agents.items():
                self._line(f"  node agent      {url}  ({node})")
        self._line("  Ctrl-C ends it\n")
        self._announced = True
        for event in self._early:
            self.event(event)

    def event(self, event: Mapping[str, object]) -> None:
        """Print an event; those from before the announcement come after it."""
        if not self._announced:
            self._early.append(event)
        elif event["kind"] not in QUIET:
            self._line(event_line(event, self._width()))

    def farewell(self, document: Mapping[str, object]) -> None:
        """Say that it ended, and how it went."""
        summary = document["summary"]
        if isinstance(summary, Mapping):
            hours = summary["gpuHours"]
            self._line(
                f"stopped after {summary['duration']:.0f} s of scenario time; {hours:.2f} GPU-hours"
            )

    @asynccontextmanager
    async def showing(self, state: Callable[[], Mapping[str, object]]) -> AsyncIterator[None]:
        """Keep a table of the loop's state below the lines, on a terminal."""
        if not self._console.is_terminal:
            yield
            return
        from rich.live import Live

        with Live(console=self._console, auto_refresh=False, transient=True) as live:
            task = asyncio.create_task(self._refresh(live.update, state), name="screen")
            try:
                yield
            finally:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    async def _refresh(
        self, update: Callable[..., None], state: Callable[[], Mapping[str, object]]
    ) -> None:
        while True:
            if self._announced:
                update(state_text(state(), self._console.width), refresh=True)
            await asyncio.sleep(_REFRESH_S)

    def _width(self) -> int | None:
        """Return the terminal's width in letters; None where the lines go to a file or a pipe."""
        return self._console.width if self._console.is_terminal else None

    def _line(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)
        self._out.flush()
