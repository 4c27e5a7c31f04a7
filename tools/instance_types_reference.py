"""docs/instance-types.md: the catalogue of instance types, made of its files.

`make reference` writes the page: `python tools/instance_types_reference.py > docs/instance-types.md`.
"""

from collections.abc import Iterator

from gpuscale.base.golang.durations import format_duration
from gpuscale.hpa.cluster.catalogue.instance_types import CLOUDS, ListedType, types_of

_START = """# Instance types

What gpuscale knows of the clouds' GPU machines. A [scenario](scenarios.md) that names one of these types
needs no `gpuModel`, `gpus`, `cpu`, `memory` and `pricePerHour`; what it gives goes before the catalogue:

```yaml
  nodePools:
    - {name: gpu, instanceType: g6.xlarge, min: 1, max: 8}
```

CPUs and memory are the machine's; the kubelet and the system take a part of them. Prices are list prices
for Linux on demand, for one node and one hour, of one region and one day: what you pay is another sum. A
fraction of a GPU is a fraction here; node autoscalers count it as none, and a simulation needs `gpus` for
it.

## Other types, other prices

`prices.csv` with your prices, and a type that is not here:

```csv
name,gpuModel,gpus,cpu,memory,pricePerHour,currency
g6.xlarge,,,,,0.52,USD
m9.xlarge,NVIDIA L4,2,16,64Gi,1.10,USD
```

A row of a known type changes what it states. `gpuscale simulate scenario.yaml --instance-types prices.csv`
reads the file for one run, and `spec.instanceCatalogue: {file: prices.csv}` for each run of a scenario. The
columns:

| column | what it is |
| --- | --- |
| `name` | the value of the label `node.kubernetes.io/instance-type` |
| `gpuModel` | as the driver names it, or an alias of [scenarios](scenarios.md#gpu-models) |
| `gpus` | how many, or a part of one such as `1/6` |
| `cpu`, `memory` | quantities of Kubernetes |
| `capacityTypes` | some of on-demand, spot, capacity-block, flex-start, reserved, with blanks between |
| `pricePerHour`, `spotPricePerHour`, `currency` | of one node; `currency` is the known price's or USD |
| `region`, `date`, `source` | of the price |
| `provisioningTime`, `provisioningSource` | from the request to a Ready node, and who measured it |

What can't be is an error with its line, the column, what was found and what belongs there.
"""


def instance_types_markdown() -> str:
    """Return the page."""
    return _START + "".join(_table(cloud) for cloud in CLOUDS)


def _table(cloud: str) -> str:
    types = list(types_of(cloud).values())
    origins = {
        f"{each.price.source}, {each.price.date}": None for each in types if each.price.source
    }
    rows = "".join(f"| {' | '.join(_cells(each))} |\n" for each in types)
    return (
        f"\n## {CLOUDS[cloud]}\n\nPrices: {'; '.join(origins)}.\n\n"
        "| type | GPUs | vCPU | memory | an hour | spot | region | sold | Ready after |\n"
        f"| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n{rows}"
    )


def _cells(each: ListedType) -> Iterator[str]:
    price = each.price
    yield f"`{each.name}`"
    yield f"{each.gpus} × {each.gpu_model}"
    yield str(each.cpu)
    yield str(each.memory)
    yield "" if price.per_hour is None else f"{price.per_hour:g} {price.currency}"
    yield "" if price.spot_per_hour is None else f"{price.spot_per_hour:g} {price.currency}"
    yield price.region
    yield ", ".join(each.capacity_types)
    took = "" if each.provisioning_ms is None else format_duration(each.provisioning_ms)
    yield f"{took} ({each.provisioning_source})" if took else ""


if __name__ == "__main__":
    print(instance_types_markdown(), end="")
