"""Test code that asks an API server, without a cluster: a fake one over real HTTP.

With pytest and pytest-asyncio the coroutine below is a test; here it runs by itself.

Prints:

    2 pods, then 1
"""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from lightkube import AsyncClient, KubeConfig
from lightkube.resources.core_v1 import Pod

from gpuscale.testing.api_server import PODS, FakeApiServer


def pod(name: str) -> dict[str, object]:
    """Return a pod as small as the code under test needs it."""
    return {"metadata": {"namespace": "ml", "name": name}, "spec": {"containers": []}}


async def count_pods(kubeconfig: Path) -> int:
    """Return how many pods there are: the code under test."""
    client = AsyncClient(KubeConfig.from_file(kubeconfig))
    try:
        return len([pod async for pod in client.list(Pod, namespace="*")])
    finally:
        await client.close()


async def test_pods_are_counted(folder: Path) -> None:
    """A pod that was deleted counts no more."""
    async with FakeApiServer() as server:
        await server.put(PODS, pod("bert-0"))
        await server.put(PODS, pod("bert-1"))
        kubeconfig = server.kubeconfig(folder)
        before = await count_pods(kubeconfig)
        await server.delete(PODS, pod("bert-1"))
        after = await count_pods(kubeconfig)
        assert (before, after) == (2, 1)
        print(f"{before} pods, then {after}")


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        asyncio.run(test_pods_are_counted(Path(folder)))
