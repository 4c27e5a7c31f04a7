"""Applying rendered objects to a cluster, removing them, and detecting what it has already."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.ops.install.cluster.apply import ApplySettings, ClusterChange, Installer
    from gpuscale.ops.install.cluster.detection import Detected, FoundWorkload, detect
    from gpuscale.ops.install.cluster.preflight import image_fault, missing_targets, zero_fault
    from gpuscale.ops.install.cluster.remove import Remover
    from gpuscale.ops.install.cluster.rights import installer_role, needed_rights, parse_subject
else:
    __getattr__ = door(__name__)

__all__ = [
    "ApplySettings",
    "ClusterChange",
    "Detected",
    "FoundWorkload",
    "Installer",
    "Remover",
    "detect",
    "image_fault",
    "installer_role",
    "missing_targets",
    "needed_rights",
    "parse_subject",
    "zero_fault",
]
