"""Simulated nodes for synchronous tests: their kubelets run in a thread of their own."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any

from gpuscale.base.objects.pods import Lifecycle
from gpuscale.kube.client import KubeClient
from gpuscale.kube.simulated import LifecycleOf, SimulatedKubelet, SimulatedNode
from gpuscale_testing.plane import ControlPlane

_TIMEOUT_S = 60.0
MakeKubelet = Callable[[KubeClient, Lifecycle | LifecycleOf | None], SimulatedKubelet]


class BackgroundKubelet:
    """A `SimulatedKubelet` in another thread; its methods block until done."""

    def __init__(self, kubelet: SimulatedKubelet) -> None:
        self._kubelet = kubelet
        self._loop = asyncio.get_running_loop()
        self._finish = asyncio.Event()

    def add(self, *nodes: SimulatedNode) -> None:
        """Return once these nodes are Ready and take pods."""
        self._run(self._kubelet.add(*nodes))

    def remove(self, name: str) -> None:
        """Take a node away, as a cloud would."""
        self._run(self._kubelet.remove(name))

    def silence(self, name: str) -> None:
        """Let a node send no more signs of life; after about 50 s it becomes NotReady."""
        self._run(self._kubelet.silence(name))

    def finish(self) -> None:
        """Let the thread end; one that has ended already is left alone."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._finish.set)

    async def finished(self) -> None:
        """Return once `finish` was called; for the thread itself."""
        await self._finish.wait()

    def _run(self, call: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(call, self._loop).result(_TIMEOUT_S)


@contextmanager
def simulated_nodes(
    plane: ControlPlane,
    *nodes: SimulatedNode,
    lifecycle: Lifecycle | LifecycleOf | None = None,
    kubelet: MakeKubelet = SimulatedKubelet,
) -> Iterator[BackgroundKubelet]:
    """Run kubelets for these nodes, and for those added later; at the end the nodes are removed.

    Args:
        plane: whose nodes they are.
        nodes: Ready when the `with` begins.
        lifecycle: how long pods take; a function is asked for each pod's, and gets the Pod as JSON data.
        kubelet: what leads the pods; one of your own may do more than lead them.
    """
    started: Future[BackgroundKubelet] = Future()

    async def serve() -> None:
        async with plane.client() as client, kubelet(client, lifecycle) as running:
            await running.add(*nodes)
            background = BackgroundKubelet(running)
            started.set_result(background)
            await background.finished()
            await running.remove_all()

    ended = _in_thread(serve, started)
    background = started.result(_TIMEOUT_S)
    try:
        yield background
    finally:
        background.finish()
        ended.result(_TIMEOUT_S)


def _in_thread(
    serve: Callable[[], Coroutine[Any, Any, None]], started: Future[Any]
) -> Future[None]:
    """Run a coroutine in a thread, and return a future of its end; what it raises comes out there."""
    ended: Future[None] = Future()

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:  # noqa: BLE001 - handed on to who waits
            ended.set_exception(error)
            if not started.done():
                started.set_exception(error)
        else:
            ended.set_result(None)

    threading.Thread(target=run, name="simulated kubelets", daemon=True).start()
    return ended
