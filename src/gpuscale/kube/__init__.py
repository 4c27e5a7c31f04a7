"""Reading and checking Kubernetes objects, and the rights that this needs."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.kube.aggregation import (
        AggregatedServer,
        aggregation_objects,
        api_service_name,
        serving_name,
    )
    from gpuscale.kube.json_values import mapping_of, text_of, texts_of
    from gpuscale.kube.reading import (
        fields_of,
        read_controller,
        read_node_record,
        read_pod_record,
        read_slice_devices,
    )
    from gpuscale.kube.rights import PATHS, Right, check_rights, missing_rights
    from gpuscale.kube.schemas import kind_schema_name, schemas_of
    from gpuscale.kube.shapes import job_faults, shape_faults
else:
    __getattr__ = door(__name__)

__all__ = [
    "PATHS",
    "AggregatedServer",
    "Right",
    "aggregation_objects",
    "api_service_name",
    "check_rights",
    "fields_of",
    "job_faults",
    "kind_schema_name",
    "mapping_of",
    "missing_rights",
    "read_controller",
    "read_node_record",
    "read_pod_record",
    "read_slice_devices",
    "schemas_of",
    "serving_name",
    "shape_faults",
    "text_of",
    "texts_of",
]
