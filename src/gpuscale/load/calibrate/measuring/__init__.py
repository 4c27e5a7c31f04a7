"""External actions of a calibration: load, signals, cluster reads."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.load.calibrate.measuring.cluster import ClusterReader, Replica, find_replica
    from gpuscale.load.calibrate.measuring.greeting import greet
    from gpuscale.load.calibrate.measuring.reading import (
        PageReader,
        PrometheusSignals,
        SignalCandidate,
        SignalReader,
        read_signal,
    )
    from gpuscale.load.calibrate.measuring.sending import Loader
    from gpuscale.load.calibrate.measuring.session import PredictionCheck, Session, SessionSettings
else:
    __getattr__ = door(__name__)

__all__ = [
    "ClusterReader",
    "Loader",
    "PageReader",
    "PredictionCheck",
    "PrometheusSignals",
    "Replica",
    "Session",
    "SessionSettings",
    "SignalCandidate",
    "SignalReader",
    "find_replica",
    "greet",
    "read_signal",
]
