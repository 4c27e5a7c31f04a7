"""What a shadow sees at a sync: what the real HPA sees, and what another in its place would see."""

from collections.abc import Mapping
from dataclasses import replace

from gpuscale.base.clock import Clock
from gpuscale.base.documents.documents import load_documents
from gpuscale.base.errors import ConfigError, GpuscaleError, Problem, UpstreamError
from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.hpa import read_hpa
from gpuscale.base.objects.nodes import offer_of
from gpuscale.base.text_files import read_text, shown_name
from gpuscale.hpa.decisions import DecisionRequest
from gpuscale.kube import fields_of, text_of
from gpuscale.kube.client import KubeClient
from gpuscale.ops.dashboard.what_if import Change, changed, deciding_index
from gpuscale.ops.doctor import facts
from gpuscale.ops.money.prices import HourPrice, NodeFacts, PriceBook
from gpuscale.ops.observe import list_all, read_request

_MODEL_LABEL = "nvidia.com/gpu.product"
"""As NVIDIA's GPU feature discovery writes it."""


def other_spec(file: str) -> Mapping[str, object]:
    """Return the `spec` of the HPA in a file.

    Raises:
        ConfigError: it can't be read, or holds something else.
    """
    documents = load_documents(read_text(file), shown_name(file))
    read = [Fields(each, each.data) for each in documents]
    wanted = [each for each in read if each.data.get("kind") == "HorizontalPodAutoscaler"]
    if len(wanted) != 1:
        found = f"{len(wanted)} HorizontalPodAutoscalers"
        raise ConfigError(Problem(shown_name(file), None, None, found, "one"))
    (fields,) = wanted
    if fields.data.get("apiVersion") != "autoscaling/v2":
        fields.note(("apiVersion",), "autoscaling/v2", found=text_of(fields.data.get("apiVersion")))
    read_hpa(fields)
    fields.finish()
    return dict(fields.child("spec").data)


class ShadowReader:
    """Reads both from a cluster.

    Args:
        client: to the API server.
        clock: for ages.
        namespace: of the HPA.
        name: of the HPA.
        other: what the imagined one has in place of the real one's spec, or what is changed of that.
        book: prices of nodes.
    """

    def __init__(
        self,
        client: KubeClient,
        clock: Clock,
        namespace: str,
        name: str,
        other: Mapping[str, object] | Change,
        book: PriceBook,
    ) -> None:
        self._client = client
        self._clock = clock
        self._hpa = namespace, name
        self._other = other
        self._book = book
        self._metric: int | None = None
        self.gpus: int | None = None
        """Of each pod; None until one was seen."""
        self.price: HourPrice | str = "no pod of the workload was on a node"
        """Of a GPU for an hour, or why it is not known."""

    async def look(self) -> tuple[DecisionRequest, DecisionRequest]:
        """Return what the real HPA sees, and what the other would see in its place.

        Raises:
            GpuscaleError: it can't be read, or the change can't be made of it.
        """
        real = await read_request(self._client, self._clock, *self._hpa)
        if isinstance(self._other, Change):
            try:
                if self._metric is None and self._other.target is not None:
                    self._metric = deciding_index(real)
                other = changed(real, self._other, self._metric)
            except ValueError as error:
                raise UpstreamError(f"--set: {error}") from None
        else:
            other = await read_request(self._client, self._clock, *self._hpa, self._other)
            # A live HPA with 0 shows that the cluster allows it, and one in a file doesn't.
            other = replace(other, settings=real.settings)
            if other.hpa.min_replicas == 0 and not real.settings.scale_to_zero:
                raise UpstreamError(
                    "the HPA in the file: minReplicas: found 0, expected at least 1; this cluster's HPAs "
                    "don't go to zero"
                )
            if other.hpa.target != real.hpa.target:
                theirs, ours = real.hpa.target, other.hpa.target
                raise UpstreamError(
                    f"the HPA in the file scales {ours.kind}/{ours.name}, and the real one "
                    f"{theirs.kind}/{theirs.name}; expected the same"
                )
        if isinstance(self.price, str):
            await self._read_price(real)
        return real, other

    async def _read_price(self, real: DecisionRequest) -> None:
        """Learn from a pod and its node what a replica has and costs; that it can't be read is a reason."""
        path = f"/api/v1/namespaces/{self._hpa[0]}/pods"
        try:
            pods = await list_all(
                self._client, path, {"labelSelector": real.scale.selector or "none"}
            )
            placed = None
            for pod in map(fields_of, pods):
                self.gpus = facts.wanted_gpus(facts.spec_of(pod))
                placed = pod if pod.child("spec").text("nodeName") else placed
            if placed is not None:
                name = placed.child("spec").text("nodeName")
                node = fields_of(await self._client.get(f"/api/v1/nodes/{name}"))
                self.price = _gpu_price(node, self._book)
        except GpuscaleError as error:
            self.price = str(error)


def _gpu_price(node: Fields, book: PriceBook) -> HourPrice | str:
    """Return what a GPU of a node costs in an hour: its share of the node."""
    labels, gpus = facts.labels(node), facts.capacity(node)
    if not gpus:
        return f"node {facts.name(node)} has no GPUs"
    model = labels.get(_MODEL_LABEL, "").replace("-", " ")
    of_node = book.of(NodeFacts(*offer_of(labels), model, gpus), gpus)
    if isinstance(of_node, str):
        return of_node
    return replace(of_node, amount=of_node.amount / gpus)
