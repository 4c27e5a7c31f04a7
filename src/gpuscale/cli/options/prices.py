"""Options that say what GPUs cost."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from gpuscale.ops.money import PriceBook

GpuPrices = Annotated[
    list[str] | None,
    typer.Option(
        "--gpu-price",
        metavar="MODEL=PRICE",
        help="What a GPU of a model costs in an hour, before the instance type's price; '*=2' for every "
        "other. May come again.",
    ),
]
GpuCurrency = Annotated[str, typer.Option("--currency", metavar="CODE", help="Of --gpu-price.")]


def price_book(
    instance_types: str | None, gpu_price: Sequence[str] | None = None, currency: str = "USD"
) -> "PriceBook":
    """Return the prices of the catalogue, with those of the options before them.

    Raises:
        UsageError: a price is none.
        ConfigError: the file of instance types has a fault.
    """
    from gpuscale.base.text_files import read_text
    from gpuscale.hpa.cluster.catalogue import built_in, parse_instance_types
    from gpuscale.ops.money import PriceBook, read_gpu_prices

    types = (
        built_in()
        if instance_types is None
        else parse_instance_types(read_text(instance_types), instance_types)
    )
    return PriceBook(types, read_gpu_prices(gpu_price or ()), currency)
