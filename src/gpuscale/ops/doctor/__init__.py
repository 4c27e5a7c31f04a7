"""`gpuscale doctor`: one snapshot of a live cluster, checked for faults hop by hop."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.ops.doctor.diagnosis import diagnose, repair, repairable
    from gpuscale.ops.doctor.facts import is_ready
    from gpuscale.ops.doctor.gather import Gatherer, GatherSettings
    from gpuscale.ops.doctor.judges import ClusterFinding, ClusterJudge
    from gpuscale.ops.doctor.prometheus import PrometheusReader
else:
    __getattr__ = door(__name__)

__all__ = [
    "ClusterFinding",
    "ClusterJudge",
    "GatherSettings",
    "Gatherer",
    "PrometheusReader",
    "diagnose",
    "is_ready",
    "repair",
    "repairable",
]
