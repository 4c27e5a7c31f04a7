"""Objects followed by list and watch."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.kube.informers.directory import Collection, CopyState, ObjectCopies
    from gpuscale.kube.informers.records import (
        Controller,
        DeviceKey,
        NodeRecord,
        NodeView,
        ObjectRecord,
        PodRecord,
    )
    from gpuscale.kube.informers.reflector import Reflector, ReflectorState
else:
    __getattr__ = door(__name__)

__all__ = [
    "Collection",
    "Controller",
    "CopyState",
    "DeviceKey",
    "NodeRecord",
    "NodeView",
    "ObjectCopies",
    "ObjectRecord",
    "PodRecord",
    "Reflector",
    "ReflectorState",
]
