"""Clouds: how their GPU nodes are recognized, and how a pool of them is created.

`Provider` and what it is made of are for plug-ins too; see docs/extending.md.
"""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.base.objects.taints import Taint
    from gpuscale.ops.providers.field import ProviderField, default_provider
    from gpuscale.ops.providers.files import PoolFile, command, script, taint_object, yaml_file
    from gpuscale.ops.providers.provider import (
        OWN_LABEL,
        AcceleratorLabel,
        Karpenter,
        NodeLabel,
        Pool,
        Provider,
        TemplateFix,
    )
    from gpuscale.ops.providers.registry import BUILT_IN, DEFAULT, NAMES, either, every, named
else:
    __getattr__ = door(__name__)

__all__ = [
    "BUILT_IN",
    "DEFAULT",
    "NAMES",
    "OWN_LABEL",
    "AcceleratorLabel",
    "Karpenter",
    "NodeLabel",
    "Pool",
    "PoolFile",
    "Provider",
    "ProviderField",
    "Taint",
    "TemplateFix",
    "command",
    "default_provider",
    "either",
    "every",
    "named",
    "script",
    "taint_object",
    "yaml_file",
]
