"""What a pool leaves out and its instance types say: GPUs, CPUs, memory and prices."""

from collections.abc import Mapping
from typing import TypeVar

from gpuscale.agent.gpu import MODELS, find_model
from gpuscale.base.documents.documents import Path
from gpuscale.base.errors import ConfigError
from gpuscale.base.words import closest
from gpuscale.hpa.cluster.catalogue import ListedType, built_in, parse_instance_types
from gpuscale.lab.sim.scenario import model as spec
from gpuscale.lab.sim.scenario.pool_model import InstanceTypeSpec, NodePoolSpec, OfferingSpec
from gpuscale.lab.sim.scenario.references import References

Described = TypeVar("Described", NodePoolSpec, InstanceTypeSpec)
_DESCRIBE = (
    "give gpuModel and gpus, and cpu and memory where they are not 8 and 64Gi, or describe the type in the "
    "file of spec.instanceCatalogue: name,gpuModel,gpus,cpu,memory,pricePerHour"
)


def with_instance_types(
    run: spec.ScenarioSpec, references: References, more: tuple[str, str] | None = None
) -> spec.ScenarioSpec:
    """Return the scenario with what its pools leave out filled in from the catalogue; faults are collected.

    Args:
        run: the scenario.
        references: reads the file that it names.
        more: text and name of another file of instance types, which goes before the scenario's.
    """
    types: Mapping[str, ListedType] = built_in()
    for given in (references.text(run.instance_catalogue, ("instanceCatalogue",)), more):
        if given is not None:
            try:
                types = parse_instance_types(*given, types)
            except ConfigError as error:
                references.problems.extend(error.problems)
    filling = _Filling(types, frozenset(each.name for each in run.gpu_models), references)
    pools = tuple(
        filling.pool(pool, ("nodePools", index)) for index, pool in enumerate(run.node_pools)
    )
    return run.model_copy(update={"node_pools": pools})


class _Filling:
    """Fills in what is known of instance types.

    Args:
        types: by name.
        described: names of the GPU models that the scenario describes.
        references: collects faults.
    """

    def __init__(
        self, types: Mapping[str, ListedType], described: frozenset[str], references: References
    ) -> None:
        self._types = types
        self._described = described
        self._references = references

    def pool(self, pool: NodePoolSpec, path: Path) -> NodePoolSpec:
        if pool.instance_types:
            shapes = tuple(
                self._shape(each, pool, (*path, "instanceTypes", index))
                for index, each in enumerate(pool.instance_types)
            )
            return pool.model_copy(update={"instance_types": shapes})
        filled = self._filled(pool, pool.instance_type, (*path, "instanceType"))
        listed = self._types.get(pool.instance_type)
        if listed is None or "price_per_hour" in pool.model_fields_set:
            return filled
        price = listed.price
        if price.per_hour is None or not _is_in(pool, price.currency):
            return filled
        return filled.model_copy(
            update={"price_per_hour": price.per_hour, "currency": price.currency}
        )

    def _shape(self, shape: InstanceTypeSpec, pool: NodePoolSpec, path: Path) -> InstanceTypeSpec:
        filled = self._filled(shape, shape.name, (*path, "name"))
        listed = self._types.get(shape.name)
        if shape.offerings:
            return filled
        offerings: list[OfferingSpec] = []
        if listed is not None and listed.price.currency == pool.currency:
            price = listed.price
            if price.per_hour is not None:
                offerings.append(OfferingSpec(price_per_hour=price.per_hour))
            if price.spot_per_hour is not None:
                offerings.append(
                    OfferingSpec(capacity_type="spot", price_per_hour=price.spot_per_hour)
                )
        if not offerings:
            expected = f"at least one: no price of {shape.name} in {pool.currency} is known"
            self._references.note((*path, "offerings"), expected)
        return filled.model_copy(update={"offerings": tuple(offerings)})

    def _filled(self, given: Described, name: str, path: Path) -> Described:
        listed = self._types.get(name)
        lacks_gpus = not given.gpu_model or given.gpus is None
        if listed is None:
            if lacks_gpus:
                near = closest(name, self._types)
                meant = f"; did you mean {near}?" if near else ""
                self._references.note(
                    path, f"a known instance type{meant}", found=repr(name), fix=_DESCRIBE
                )
            return given
        if given.gpus is None and listed.whole_gpus != listed.gpus:
            self._references.note(
                path,
                "whole GPUs: gpus says how many turns on it the nodes offer",
                found=f"{name} with {listed.gpus} of one {listed.gpu_model}",
            )
        gpu_model = given.gpu_model or listed.gpu_model
        if (
            not given.gpu_model
            and gpu_model not in self._described
            and find_model(gpu_model, MODELS.values()) is None
        ):
            self._references.note(
                path,
                "gpuModel beside it, or that model in spec.gpuModels: it is not known",
                found=f"{name} with {gpu_model}",
            )
            gpu_model = ""
        found: dict[str, object] = {
            "gpu_model": gpu_model,
            "gpus": max(listed.whole_gpus, 1),
            "cpu": str(listed.cpu),
            "memory": str(listed.memory),
        }
        left_out = {key: each for key, each in found.items() if key not in given.model_fields_set}
        return given.model_copy(update=left_out)


def _is_in(pool: NodePoolSpec, currency: str) -> bool:
    """Return whether a pool's prices may be in a currency."""
    return pool.currency == currency or "currency" not in pool.model_fields_set
