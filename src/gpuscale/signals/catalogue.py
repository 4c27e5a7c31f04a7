"""Every signal by its name."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from gpuscale.signals.gateways import GATEWAY_SIGNALS
from gpuscale.signals.gpus import GPU_SIGNALS
from gpuscale.signals.proxies import PROXY_SIGNALS
from gpuscale.signals.queues import QUEUE_SIGNALS
from gpuscale.signals.servers import SERVER_SIGNALS
from gpuscale.signals.signal import Signal, SignalFamily

SIGNALS: Mapping[str, Signal] = MappingProxyType(
    {
        **dict(GPU_SIGNALS.items()),
        **SERVER_SIGNALS,
        **GATEWAY_SIGNALS,
        **PROXY_SIGNALS,
        **QUEUE_SIGNALS,
    }
)


def by_family() -> Iterator[tuple[SignalFamily, dict[str, Signal]]]:
    """Yield each family with its signals, in their order."""
    for family in dict.fromkeys(each.family for each in SIGNALS.values()):
        yield family, {name: each for name, each in SIGNALS.items() if each.family is family}
