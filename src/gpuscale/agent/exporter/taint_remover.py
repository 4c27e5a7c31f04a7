"""The start-up taint of this node, which is taken off once its GPUs are of use.

A node is Ready minutes before its GPUs are: the driver starts, then a device plugin finds them. Until then
the taint, which the pool gives each new node, keeps pods off, and node autoscalers count on the node all the
same. It goes when every GPU answers and Kubernetes has GPUs to give: by any name, or as devices of claims.

It is taken off once and never put back: pods that run would stay, and a cloud that sets it again means it.
The rights for it end at this node and this taint; see the admission policy of the chart.
"""

import logging
from collections import Counter as Tally
from collections.abc import Callable
from enum import Enum, auto

from gpuscale.agent.attribution.pods.slices import slices_path
from gpuscale.agent.attribution.settings import KubeletSettings
from gpuscale.agent.exporter.families.own_metrics import ReadyTaintStatus
from gpuscale.agent.exporter.settings import ReadyTaint
from gpuscale.base.backoff import Backoff
from gpuscale.base.clock import Clock
from gpuscale.base.objects.gpu_resources import GpuKind, gpu_kind
from gpuscale.kube import mapping_of, text_of
from gpuscale.kube.client import (
    ApiStatusError,
    ApiUnreachableError,
    JsonObject,
    KubeClient,
    KubeSettings,
)

_LOOK_S = 5.0
"""While the taint is there; a node takes minutes to come up."""
_LATE_LOOK_S = 30.0
_LATE_LOOKS = 20
"""Clouds may set the taint after the node is made; ten minutes later none will."""
_FORBIDDEN = (401, 403)
_NOT_FOUND = 404
_CHANGED = (409, 422)
"""422 is the answer of a JSON patch whose `test` does not hold."""

_log = logging.getLogger(__name__)


class _Look(Enum):
    """What a look at the node came to."""

    ABSENT = auto()
    STAYS = auto()
    REMOVED = auto()
    FAILED = auto()


class TaintRemover:
    """Takes the taint off this node when its GPUs are of use.

    Args:
        taint: which.
        server: how the API server is reached.
        kubelet: which resources and drivers of claims are of GPUs.
        gpu_fault: returns why not every GPU answers; None if they do.
        clock: times the waits.

    Raises:
        UsageError: there is no usable kubeconfig or service account.
        ConfigError: the kubeconfig is no YAML.
    """

    def __init__(
        self,
        taint: ReadyTaint,
        server: KubeSettings,
        kubelet: KubeletSettings,
        gpu_fault: Callable[[], str | None],
        clock: Clock,
    ) -> None:
        self._taint = taint
        self._client = KubeClient(server)
        self._path = f"/api/v1/nodes/{taint.node}"
        self._kubelet = kubelet
        self._gpu_fault = gpu_fault
        self._clock = clock
        self._waits = Backoff(server.retry_s, server.max_retry_s)
        self._is_there: bool | None = None
        self._waits_for = ""
        self._errors: Tally[str] = Tally()

    @property
    def status(self) -> ReadyTaintStatus:
        """Return whether the taint is there, what it waits for, and what went wrong so far."""
        return ReadyTaintStatus(self._is_there, self._waits_for, dict(self._errors))

    async def run(self) -> None:
        """Look at the node until the taint was taken off, or is not there and won't come."""
        late_looks = 0
        try:
            while late_looks < _LATE_LOOKS:
                look = await self._try()
                if look is _Look.REMOVED:
                    return
                if look is _Look.FAILED:
                    await self._clock.sleep(self._waits.jittered())
                    continue
                self._waits.reset()
                late_looks = late_looks + 1 if look is _Look.ABSENT else 0
                await self._clock.sleep(_LATE_LOOK_S if look is _Look.ABSENT else _LOOK_S)
        finally:
            await self._client.close()

    async def _try(self) -> _Look:
        try:
            return await self._look()
        except (ApiStatusError, ApiUnreachableError) as error:
            self._fail(error)
        except Exception:  # noqa: BLE001 - the task's top: no odd answer may keep the node shut for good
            _log.exception("looking at the taint %s of node %s broke off", *self._names)
            self._errors["fault"] += 1
        return _Look.FAILED

    async def _look(self) -> _Look:
        """Look at the node once, and take the taint off if its time has come."""
        node = await self._client.get(self._path)
        taints = mapping_of(node.get("spec")).get("taints")
        present = taints if isinstance(taints, list) else []
        others = [each for each in present if mapping_of(each).get("key") != self._taint.key]
        self._is_there = len(others) < len(present)
        if not self._is_there:
            self._wait_for("")
            return _Look.ABSENT
        missing = self._gpu_fault() or await self._plugin_fault(node)
        if missing:
            self._wait_for(missing)
            return _Look.STAYS
        # The list has to be the one that was looked at: others add and remove taints too.
        operations: list[JsonObject] = [{"op": "test", "path": "/spec/taints", "value": present}]
        if others:
            operations.append({"op": "replace", "path": "/spec/taints", "value": others})
        else:
            operations.append({"op": "remove", "path": "/spec/taints"})
        await self._client.json_patch(self._path, operations)
        self._is_there = False
        self._wait_for("")
        _log.info("took the taint %s off node %s: its GPUs are of use", *self._names)
        return _Look.REMOVED

    async def _plugin_fault(self, node: JsonObject) -> str | None:
        """Return why Kubernetes has no GPU of the node to give; None if it has."""
        amounts = mapping_of(mapping_of(node.get("status")).get("allocatable"))
        if any(self._is_gpu(name) and str(amount) != "0" for name, amount in amounts.items()):
            return None
        found = "the device plugin has registered no GPU (status.allocatable)"
        try:
            path = await slices_path(self._client)
            on_node = {"fieldSelector": f"spec.nodeName={self._taint.node}"}
            slices = (await self._client.get(path, on_node)).get("items")
        except ApiStatusError as error:
            return found if error.code == _NOT_FOUND else f"{found}, and {error}"
        specs = (mapping_of(mapping_of(each).get("spec")) for each in slices or ())
        if any(
            text_of(each.get("driver")) in self._kubelet.dra_drivers and each.get("devices")
            for each in specs
        ):
            return None
        return f"{found}, nor a driver for claims (ResourceSlices)"

    def _is_gpu(self, resource: str) -> bool:
        is_known = gpu_kind(resource) not in (None, GpuKind.QUALIFIER)
        return is_known or resource in self._kubelet.resource_names

    @property
    def _names(self) -> tuple[str, str]:
        return self._taint.key, self._taint.node

    def _wait_for(self, missing: str) -> None:
        if missing and missing != self._waits_for:
            _log.info("the taint %s stays on node %s: %s", *self._names, missing)
        self._waits_for = missing

    def _fail(self, error: ApiStatusError | ApiUnreachableError) -> None:
        text = str(error)
        if isinstance(error, ApiUnreachableError):
            reason = "unreachable"
        elif error.code in _FORBIDDEN:
            reason = "forbidden"
            text += (
                "; the node agent's service account needs get and patch of nodes, and an admission "
                "policy that lets it change this node: install with agent.readyTaint"
            )
        elif error.code in _CHANGED:
            reason = "changed"  # someone else changed the taints after they were looked at
        else:
            reason = "no_node" if error.code == _NOT_FOUND else "refused"
        self._errors[reason] += 1
        if text != self._waits_for:
            _log.warning("can't see to the taint %s of node %s: %s", *self._names, text)
        self._waits_for = text
