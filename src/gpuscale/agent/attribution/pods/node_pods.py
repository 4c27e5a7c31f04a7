"""One node's objects at the API server, watched while a node agent runs."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from gpuscale.agent.attribution.pods.owners import OwnerResolver
from gpuscale.agent.attribution.pods.slices import slices_path
from gpuscale.agent.attribution.settings import NodeSettings
from gpuscale.agent.attribution.sharing.schemes import reads_key
from gpuscale.base.clock import Clock
from gpuscale.base.errors import GpuscaleError
from gpuscale.base.objects.meta import OwnerReference
from gpuscale.kube import read_node_record, read_pod_record, read_slice_devices
from gpuscale.kube.client import ApiStatusError, ApiUnreachableError, JsonObject, KubeClient
from gpuscale.kube.informers import DeviceKey, NodeView, PodRecord, Reflector

Item = TypeVar("Item")
_DRA_RETRY_S = 60.0
_ANY = ".*"
"""The expression that matches every label, which is what is asked for unless one is given."""
_LATER_BATCH_S = 0.05
"""Changes come in bursts; so long they are gathered before owners are looked up."""


class NodeWatcher:
    """Watches one node's pods, resources and, on demand, resource claims.

    Args:
        settings: how to reach the API server, which node, and which labels are kept.
        clock: gives the times, and times the waits.

    Raises:
        UsageError: there is no usable kubeconfig or service account.
        ConfigError: the kubeconfig is no YAML.
        ValueError: an expression for labels is not RE2.
    """

    def __init__(self, settings: NodeSettings, clock: Clock) -> None:
        self._keeps_label = _keeps(settings.pod_labels)
        self._connection = connection = KubeClient(settings.server)
        self._settings = settings
        self._clock = clock
        self._resolver = OwnerResolver(connection)
        self._changed = asyncio.Event()
        self._wants_claims = asyncio.Event()
        self._owners: dict[str, OwnerReference] = {}
        self._dra_error: GpuscaleError | None = None
        on_node = {"fieldSelector": f"spec.nodeName={settings.name}"}
        this_node = {"fieldSelector": f"metadata.name={settings.name}"}
        self._pods = self._reflector("/api/v1/pods", on_node, self._read_pod)
        self._node = self._reflector("/api/v1/nodes", this_node, read_node_record)
        self._slices: Reflector[dict[DeviceKey, str]] | None = None
        self._view = NodeView()

    @property
    def view(self) -> NodeView:
        """Return the current view; the same object while nothing changes."""
        return self._view

    def want_claims(self) -> None:
        """Follow ResourceSlices from now on; without claims on the node they are not needed."""
        self._wants_claims.set()

    async def run(self) -> None:
        """Follow the node until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pods.run(), name="kube-pods")
            group.create_task(self._node.run(), name="kube-node")
            group.create_task(self._follow_slices(), name="kube-slices")
            group.create_task(self._publish(), name="kube-owners")

    async def close(self) -> None:
        await self._connection.close()

    def _reflector(
        self, path: str, params: Mapping[str, str], read: Callable[[JsonObject], Item | None]
    ) -> Reflector[Item]:
        return Reflector(
            self._connection,
            self._settings.server,
            path,
            params,
            read,
            self._clock,
            self._changed.set,
        )

    def _read_pod(self, body: JsonObject) -> PodRecord:
        return read_pod_record(body, self._keeps_label, reads_key)

    async def _publish(self) -> None:
        """Publish a new view after each change: first without owners, then with them."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            self._view = self._make_view()
            before = self._owners
            self._owners = await self._resolver.top_owners(tuple(self._pods.items.values()))
            if self._owners != before:
                self._view = self._make_view()
            await asyncio.sleep(_LATER_BATCH_S)

    def _make_view(self) -> NodeView:
        slices = self._slices
        devices = slices.items.values() if slices else ()
        return NodeView(
            pods=tuple(self._pods.items.values()),
            owners=self._owners,
            node=next(iter(self._node.items.values()), None),
            claim_devices={key: uuid for each in devices for key, uuid in each.items()},
            has_pods=self._pods.state.listed,
            error=self._pods.state.error,
            error_since_ms=self._pods.state.since_ms,
            node_error=self._node.state.error,
            claims_error=slices.state.error if slices else self._dra_error,
        )

    async def _follow_slices(self) -> None:
        await self._wants_claims.wait()
        path = ""
        while not path:  # a server may have them later
            try:
                path = await slices_path(self._connection)
            except (ApiUnreachableError, ApiStatusError) as error:
                self._dra_error = error
                self._changed.set()
                await self._clock.sleep(_DRA_RETRY_S)
        on_node = {"fieldSelector": f"spec.nodeName={self._settings.name}"}
        self._slices = self._reflector(path, on_node, read_slice_devices)
        await self._slices.run()


def _keeps(expressions: Sequence[str]) -> Callable[[str], bool]:
    """Return whether a label is kept: its key matches one of the expressions."""
    if not expressions or _ANY in expressions:
        return lambda _key: bool(expressions)
    # Imported late: most agents keep all labels or none, and RE2 takes 2 MiB.
    from gpuscale.base.regex import compile_re2

    patterns = tuple(map(compile_re2, expressions))
    return lambda key: any(each.search(key) for each in patterns)
