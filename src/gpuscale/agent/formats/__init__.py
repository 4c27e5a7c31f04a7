"""Readings as metric families, in the formats of dcgm-exporter, ACK and AMD."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.agent.formats.ack import ACK_FIELDS, ALL_NAMES
    from gpuscale.agent.formats.labels import FamilyOptions, LabelPairs
    from gpuscale.agent.formats.styles import Style, agent_families
else:
    __getattr__ = door(__name__)

__all__ = ["ACK_FIELDS", "ALL_NAMES", "FamilyOptions", "LabelPairs", "Style", "agent_families"]
