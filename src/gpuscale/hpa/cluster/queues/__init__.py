"""Which workloads get quota of Kueue's queues, with which flavors, and why the others wait."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.hpa.cluster.queues.admission import Admission, PodSet, QueuedWorkload, Queues
else:
    __getattr__ = door(__name__)

__all__ = ["Admission", "PodSet", "QueuedWorkload", "Queues"]
