"""`gpuscale scaler`: triggers served to KEDA as an external scaler, over gRPC."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.server.scaler import settings
    from gpuscale.server.scaler.asking import Channel, ask_scaler, lines_of
    from gpuscale.server.scaler.process import scaler_server
    from gpuscale.server.scaler.settings import COMMON, FLAGS, GROUPS, ScalerSettings, read_settings
else:
    __getattr__ = door(__name__)

__all__ = [
    "COMMON",
    "FLAGS",
    "GROUPS",
    "Channel",
    "ScalerSettings",
    "ask_scaler",
    "lines_of",
    "read_settings",
    "scaler_server",
    "settings",
]
