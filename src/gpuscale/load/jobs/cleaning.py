"""Finds and deletes the Jobs of runs by their labels, and nothing else."""

import asyncio
from dataclasses import dataclass
from typing import Any

from gpuscale.base.clock import Clock, WallClock
from gpuscale.base.errors import UnavailableError
from gpuscale.base.words import counted
from gpuscale.kube.client import ApiStatusError, ApiUnreachableError, KubeClient
from gpuscale.load.jobs.template import RUN, run_selector

_PAGE = "500"
_LOOK_S = 0.5
_LIMIT_S = 120.0
"""Pods get 30 s to end, unless they ask for more."""
_BACKGROUND = {"propagationPolicy": "Background"}
FORBIDDEN = 403


def jobs_path(namespace: str | None) -> str:
    """Return the Jobs of a namespace; of all for None."""
    return f"/apis/batch/v1{_place(namespace)}/jobs"


def pods_path(namespace: str | None) -> str:
    """Return the pods of a namespace; of all for None."""
    return f"/api/v1{_place(namespace)}/pods"


def _place(namespace: str | None) -> str:
    return f"/namespaces/{namespace}" if namespace else ""


@dataclass(frozen=True, slots=True)
class Leftover:
    """What a run left in one namespace."""

    run: str
    namespace: str
    jobs: int
    since: str
    """When the first of its Jobs was made, as the API server writes it."""


class JobCleaner:
    """Removes Jobs and their pods.

    Args:
        client: to the API server.
        namespace: where; None is everywhere.
        run: of one run; None is of any.
        clock: times the waits.
    """

    def __init__(
        self,
        client: KubeClient,
        namespace: str | None,
        run: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._selector = run_selector(run)
        self._clock = clock or WallClock()

    async def found(self) -> tuple[Leftover, ...]:
        """Return the leftovers, by run and namespace.

        Raises:
            ApiUnreachableError: no answer, or not now.
            ApiStatusError: refused.
        """
        jobs: dict[tuple[str, str], list[str]] = {}
        for body in await self._items(jobs_path(self._namespace)):
            metadata = body["metadata"]
            key = (metadata["labels"][RUN], metadata["namespace"])
            jobs.setdefault(key, []).append(metadata.get("creationTimestamp", ""))
        return tuple(
            Leftover(*key, jobs=len(times), since=min(times)) for key, times in sorted(jobs.items())
        )

    async def remove(self) -> tuple[str, ...]:
        """Remove all Jobs, wait until their pods are gone, and return the Jobs as `namespace/name`, sorted.

        Raises:
            UnavailableError: something is still there after a while, or the API server is not.
            ApiStatusError: refused.
        """
        names: set[str] = set()
        deadline_ms = self._clock.now_ms() + round(_LIMIT_S * 1000)
        while True:
            jobs = await self._items(jobs_path(self._namespace))
            for namespace in sorted({job["metadata"]["namespace"] for job in jobs}):
                selectors = {"labelSelector": self._selector}
                await self._client.delete(jobs_path(namespace), _BACKGROUND, selectors=selectors)
            names |= {_key(job) for job in jobs}
            # A pod without its Job, such as one that was orphaned at the Job's deletion.
            pods = await self._items(pods_path(self._namespace))
            for pod in pods:
                if "deletionTimestamp" not in pod["metadata"] and not jobs:
                    await self._client.delete(_path(pod))
            if not jobs and not pods:
                return tuple(sorted(names))
            if self._clock.now_ms() > deadline_ms:
                left = [
                    *(f"Job {_key(job)}" for job in jobs),
                    *(f"Pod {_key(pod)}" for pod in pods),
                ]
                rest = f" and {len(left) - 5} more" if len(left) > 5 else ""
                raise UnavailableError(
                    f"still there after {_LIMIT_S:g} s: {', '.join(left[:5])}{rest}"
                )
            await self._clock.sleep(_LOOK_S)

    async def _items(self, path: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        params = {"labelSelector": self._selector, "limit": _PAGE}
        while True:
            body = await self._client.get(path, params)
            items += body.get("items") or []
            following = (body.get("metadata") or {}).get("continue")
            if not following:
                return items
            params = {**params, "continue": following}


async def remove_in_the_end(cleaner: JobCleaner) -> tuple[str, ...]:
    """Delete everything, retrying while the API server is away.

    Raises:
        UnavailableError: it stayed away, or something is still there.
        ApiStatusError: refused.
    """
    for _ in range(10):
        try:
            return await cleaner.remove()
        except ApiUnreachableError:
            await asyncio.sleep(1.0)
    return await cleaner.remove()


async def clean(
    client: KubeClient, namespace: str | None, fallback: str, run: str | None
) -> tuple[str, ...]:
    """Delete what runs have left, and return the Jobs.

    Args:
        client: to the API server.
        namespace: where; None is everywhere that the account may look.
        fallback: the one namespace, where it may not look everywhere.
        run: of one run; None is of any.

    Raises:
        UnavailableError: something is still there after a while, or the API server is not.
        ApiStatusError: refused.
    """
    try:
        return await JobCleaner(client, namespace, run).remove()
    except ApiStatusError as error:
        if error.code != FORBIDDEN or namespace is not None:
            raise
    return await JobCleaner(client, fallback, run).remove()


def leftover_text(found: Leftover, options: str) -> str:
    """Return a message about an earlier run's Jobs.

    Args:
        found: the Jobs.
        options: what leads to the same cluster, beginning with a blank.
    """
    return (
        f"found {counted(found.jobs, 'Job')} of run {found.run} in namespace {found.namespace}, "
        f"since {found.since}; unless that run still goes on, remove them with: "
        f"gpuscale load jobs{options} -n {found.namespace} --clean --run {found.run}"
    )


def _key(body: dict[str, Any]) -> str:
    return f"{body['metadata']['namespace']}/{body['metadata']['name']}"


def _path(pod: dict[str, Any]) -> str:
    return f"{pods_path(pod['metadata']['namespace'])}/{pod['metadata']['name']}"
