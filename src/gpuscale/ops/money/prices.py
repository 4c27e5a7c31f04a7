"""What an hour of a node costs: by its instance type, or by the model of its GPUs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gpuscale.base.errors import UsageError
from gpuscale.base.objects.nodes import NODE_LABELS, offer_of
from gpuscale.hpa.cluster.catalogue import ListedType
from gpuscale.ops.money.questions import series_label


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What is known of a node."""

    instance_type: str = ""
    pool: str = ""
    is_spot: bool = False
    model: str = ""
    gpus: int = 0
    """That were seen on it; 0 where none was."""


def node_facts(labels: Mapping[str, str], model: str, gpus: int) -> NodeFacts:
    """Return what the labels of kube-state-metrics and the GPUs' series say of a node."""
    found = {key: labels.get(f"label_{series_label(key)}", "") for key in NODE_LABELS}
    return NodeFacts(*offer_of(found), model, gpus)


@dataclass(frozen=True, slots=True)
class HourPrice:
    """What an hour of a node costs."""

    amount: float
    currency: str
    source: str
    """Whose price it is, and of which day."""


@dataclass(frozen=True, slots=True)
class PriceBook:
    """Prices of instance types, and of GPUs by their model."""

    types: Mapping[str, ListedType]
    gpus: Mapping[str, float] = field(default_factory=dict)
    """Per GPU and hour; they go before those of types, and `*` is every other model."""
    currency: str = "USD"
    """Of `gpus`."""

    def of(self, node: NodeFacts, gpus: float) -> HourPrice | str:
        """Return a node's price for an hour, or why it is not known.

        Args:
            node: what is known of it.
            gpus: that it has.
        """
        own = self.gpus.get(node.model, self.gpus.get("*"))
        if own is not None:
            return HourPrice(own * gpus, self.currency, f"--gpu-price of {node.model or 'all'}")
        listed = self.types.get(node.instance_type)
        if listed is None:
            if node.instance_type:
                return f"instance type {node.instance_type}: not in the catalogue"
            return (
                "no label says the instance type (kube_node_labels), and no --gpu-price the GPUs'"
            )
        price = listed.price
        amount = price.spot_per_hour if node.is_spot else price.per_hour
        if amount is None:
            return f"instance type {node.instance_type}: no {'spot ' * node.is_spot}price is known"
        place = ", ".join(each for each in (price.region, price.date) if each)
        return HourPrice(
            amount,
            price.currency,
            f"{node.instance_type} ({place})" if place else node.instance_type,
        )


def read_gpu_prices(given: Iterable[str]) -> dict[str, float]:
    """Return the prices in texts such as `NVIDIA H200=3.5`.

    Raises:
        UsageError: a text is no such thing.
    """
    found = {}
    for each in given:
        model, equals, amount = each.rpartition("=")
        try:
            price = float(amount)
        except ValueError:
            price = -1.0
        if not model or not equals or not 0 <= price < 1e6:
            raise UsageError(
                f"--gpu-price: found {each!r}, expected a model and what a GPU costs in an hour, such as "
                "'NVIDIA H200=3.50', or '*=2' for all others"
            )
        found[model] = price
    return found
