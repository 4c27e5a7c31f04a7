"""Messages of the kubelet's pod-resources API; `make proto` makes them from `podresources.proto`."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.agent.attribution.proto import podresources_pb2
else:
    __getattr__ = door(__name__)

__all__ = ["podresources_pb2"]
