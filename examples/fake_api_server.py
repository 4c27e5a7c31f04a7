"""Test code that asks an API server, without a cluster: a fake one over real HTTP.

With pytest and pytest-asyncio the coroutine below is a test; here it runs by itself.

Prints:

    2 pods, then 1
"""

import asyncio
import json
from urllib.request import Request, urlopen

from gpuscale.testing.api_server import PODS, FakeApiServer


def pod(name: str) -> dict[str, object]:
    """Return a pod as small as the code under test needs it."""
    return {"metadata": {"namespace": "ml", "name": name}, "spec": {"containers": []}}


def count_pods(url: str, token: str) -> int:
    """Return how many pods there are: the code under test."""
    request = Request(f"{url}/api/v1/pods", headers={"Authorization": f"Bearer {token}"})  # noqa: S310 - loopback
    with urlopen(request) as answer:  # noqa: S310
        return len(json.load(answer)["items"])


async def test_pods_are_counted() -> None:
    """A pod that was deleted counts no more."""
    async with FakeApiServer() as server:
        url = f"http://127.0.0.1:{server.port}"
        await server.put(PODS, pod("bert-0"))
        await server.put(PODS, pod("bert-1"))
        before = await asyncio.to_thread(count_pods, url, server.token)
        await server.delete(PODS, pod("bert-1"))
        after = await asyncio.to_thread(count_pods, url, server.token)
        assert (before, after) == (2, 1)
        print(f"{before} pods, then {after}")


if __name__ == "__main__":
    asyncio.run(test_pods_are_counted())
