"""Kubernetes' words around an HPA: conditions, units and paths of metrics, kubectl's cells, releases."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.hpa.terms.conditions import (
        ABLE_TO_SCALE,
        SCALED_TO_ZERO,
        SCALING_ACTIVE,
        SCALING_DISABLED,
        SCALING_LIMITED,
        could_decide,
        is_true,
    )
    from gpuscale.hpa.terms.queries import is_namespace, metric_command, metric_path, scale_path
    from gpuscale.hpa.terms.samples import is_one_number
    from gpuscale.hpa.terms.units import (
        UNITS,
        MetricUnit,
        UnitFault,
        counted_target,
        counts_average,
        spec_unit_fault,
        unit_fault,
        unit_of,
        unit_of_query,
    )
    from gpuscale.hpa.terms.versions import (
        HPA_GENERATION,
        MARKS_ZERO,
        SCALE_TO_ZERO,
        TOLERANCE,
        KubernetesVersion,
        parse_version,
        settings_of,
        version_or_none,
    )
else:
    __getattr__ = door(__name__)

__all__ = [
    "ABLE_TO_SCALE",
    "HPA_GENERATION",
    "MARKS_ZERO",
    "SCALED_TO_ZERO",
    "SCALE_TO_ZERO",
    "SCALING_ACTIVE",
    "SCALING_DISABLED",
    "SCALING_LIMITED",
    "TOLERANCE",
    "UNITS",
    "KubernetesVersion",
    "MetricUnit",
    "UnitFault",
    "could_decide",
    "counted_target",
    "counts_average",
    "is_namespace",
    "is_one_number",
    "is_true",
    "metric_command",
    "metric_path",
    "parse_version",
    "scale_path",
    "settings_of",
    "spec_unit_fault",
    "unit_fault",
    "unit_of",
    "unit_of_query",
    "version_or_none",
]
