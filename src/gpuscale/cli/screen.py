"""What `up` and `rehearse` print: addresses, each event as a line, and on a terminal a short live table."""

import asyncio
import shlex
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TextIO

from gpuscale.base.pages.words import plain_text
from gpuscale.lab.views import event_lines, state_text

QUIET = ("SuccessfulCreate", "SuccessfulDelete", "ScalingReplicaSet", "Started", "Killing")
"""Steps between others; the page lists them, the terminal shows what they lead to."""
_REFRESH_S = 0.5
_MOST_AGENTS = 3
"""That are listed; the others are one line."""


class Screen:
    """A terminal, or a plain stream of lines where there is none.

    Args:
        out: where to.
        on_gone: called when the reader of the stream has closed it.
    """

    def __init__(self, out: TextIO, on_gone: Callable[[], None]) -> None:
        from rich.console import Console

        self._out = out
        self._on_gone = on_gone
        self.is_gone = False
        """Whether it has no reader any more."""
        self._console = Console(file=out)
        self._announced = False
        self._early: list[Mapping[str, object]] = []

    def announce(
        self, name: str, description: str, speed: float, addresses: Mapping[str, object]
    ) -> None:
        """Say what runs and where it can be looked at."""
        self._line(f"gpuscale: scenario {name}, {speed:g} times as fast as real time")
        self._line(plain_text(description), wraps=True)
        self._line("")
        self._line(f"  page            {addresses['page']}")
        others = addresses.get("otherPages")
        for page in others if isinstance(others, list) else ():
            self._line(f"                  {page}")
        server = addresses["prometheus"]
        listing = "/apis/custom.metrics.k8s.io/v1beta1"
        self._line(f"  Prometheus API  {server}/api/v1/query?query=DCGM_FI_DEV_GPU_UTIL")
        if kubeconfig := addresses.get("kubeconfig"):
            self._line(f"  Kubernetes API  export KUBECONFIG={shlex.quote(str(kubeconfig))}")
            resources = addresses.get("resources", "hpa,pods,nodes")
            self._line(f"                  kubectl get {resources}; kubectl top pods")
        self._line(f"  metrics API     kubectl --server={server} get --raw {listing}")
        services = addresses.get("services")
        for name, url in services.items() if isinstance(services, Mapping) else ():
            self._line(f"  service         {url}  ({name}; try: hey -z 60s -c 8 {url})")
        if services and speed != 1:
            self._line(
                f"                  what takes {speed:g} s in the scenario is answered within 1 s here"
            )
        agents = addresses["nodeAgents"]
        if isinstance(agents, Mapping):
            shown = len(agents) if len(agents) <= _MOST_AGENTS + 1 else _MOST_AGENTS
            for node, url in list(agents.items())[:shown]:
                self._line(f"  node agent      {url}  ({node})")
            if len(agents) > shown:
                more = len(agents) - shown
                self._line(f"                  and {more} more, of {server}/api/v1/targets")
        self._line("  Ctrl-C ends it\n")
        if others:
            self._line("Whoever reaches these addresses can watch the run and change its load.\n")
        self.begin()

    def begin(self) -> None:
        """Show events and state from now on, and the events that came before."""
        self._announced = True
        for event in self._early:
            self.event(event)

    def event(self, event: Mapping[str, object]) -> None:
        """Print an event; those from before the announcement come after it."""
        if not self._announced:
            self._early.append(event)
        elif event["kind"] not in QUIET:
            width = self._width()
            for line in event_lines(event, width):
                self._line(line)

    def scenario_over(self, steps: Sequence[tuple[str, str]]) -> None:
        """Say that the scenario is over, what happens now, and what to do next: texts and commands."""
        self._line(
            "the scenario is over; the loop keeps running and serving: press Ctrl-C to end it"
        )
        for text, command in steps:
            self._line(f"  {text}: {command}")

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

    def _line(self, text: str, *, wraps: bool = False) -> None:
        """Write a line; on a terminal, one that wraps between its words if asked to."""
        encoding = self._out.encoding or "utf-8"
        known = text.encode(encoding, "backslashreplace").decode(encoding)
        if self._console.is_terminal:
            self._console.print(known, highlight=False, markup=False, soft_wrap=not wraps)
            self._out.flush()
        elif not self.is_gone:
            self._plain_line(known)

    def _plain_line(self, text: str) -> None:
        try:
            self._out.write(f"{text}\n")
            self._out.flush()
        except BrokenPipeError:
            self.is_gone = True
            self._on_gone()
