"""Instance types of clouds: their GPUs, CPUs, memory and list prices, and files that add to them."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.hpa.cluster.catalogue.instance_types import (
        ListedType,
        built_in,
        parse_instance_types,
        types_of,
    )
else:
    __getattr__ = door(__name__)

__all__ = [
    "ListedType",
    "built_in",
    "parse_instance_types",
    "types_of",
]
