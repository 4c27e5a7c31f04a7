"""A pod's top owner: the Deployment of a ReplicaSet, the CronJob of a Job."""

import logging
from collections.abc import Sequence

from gpuscale.base.objects.meta import OwnerReference
from gpuscale.kube import read_controller
from gpuscale.kube.client import METADATA_ONLY, ApiStatusError, ApiUnreachableError, Reads
from gpuscale.kube.informers import Controller, PodRecord

_log = logging.getLogger(__name__)


_BETWEEN = {
    "ReplicaSet": "/apis/apps/v1/namespaces/{}/replicasets/{}",
    "Job": "/apis/batch/v1/namespaces/{}/jobs/{}",
}
"""Kinds that stand between pods and what users know, and where they are found."""


class OwnerResolver:
    """Finds top owners, asking the API server once for each ReplicaSet and Job.

    Args:
        connection: to the API server.
    """

    def __init__(self, connection: Reads) -> None:
        self._connection = connection
        self._above: dict[str, OwnerReference] = {}
        self._is_refused = False
        self._is_away = False
        """Whether the server did not answer in this round; then nothing more is asked in it."""

    async def top_owners(self, pods: Sequence[PodRecord]) -> dict[str, OwnerReference]:
        """Return pod UID to the pod's top owner; pods on their own are missing.

        Where the server does not say, a ReplicaSet's name gives its Deployment away, and a Job is its own
        top. Owners of other pods are forgotten.
        """
        controllers = {pod.controller.uid for pod in pods if pod.controller}
        self._above = {uid: owner for uid, owner in self._above.items() if uid in controllers}
        owners = {}
        for pod in pods:
            if pod.controller is not None:
                owners[pod.uid] = await self._top_owner(pod, pod.controller)
        self._is_away = False
        return owners

    async def _top_owner(self, pod: PodRecord, controller: Controller) -> OwnerReference:
        if controller.kind not in _BETWEEN:
            return controller.owner
        known = self._above.get(controller.uid)
        if known is not None:
            return known
        return _guess(pod, controller) if self._is_away else await self._look_up(pod, controller)

    async def _look_up(self, pod: PodRecord, controller: Controller) -> OwnerReference:
        path = _BETWEEN[controller.kind].format(pod.namespace, controller.name)
        try:
            body = await self._connection.get(path, accept=METADATA_ONLY)
        except ApiUnreachableError:
            self._is_away = True
            return _guess(pod, controller)
        except ApiStatusError as error:
            self._note_refusal(error)
            found = _guess(pod, controller)
        else:
            above = read_controller(body)
            found = above.owner if above else controller.owner
        self._above[controller.uid] = found
        return found

    def _note_refusal(self, error: ApiStatusError) -> None:
        if not self._is_refused:
            _log.info(
                "owners are derived from names where the API server does not report them: %s", error
            )
        self._is_refused = True


def _guess(pod: PodRecord, controller: Controller) -> OwnerReference:
    """Return the top owner guessed by name: a Deployment's name and a hash make its ReplicaSet's name."""
    suffix = f"-{pod.template_hash}"
    if controller.kind == "ReplicaSet" and pod.template_hash and controller.name.endswith(suffix):
        return OwnerReference("Deployment", controller.name.removesuffix(suffix))
    return controller.owner
