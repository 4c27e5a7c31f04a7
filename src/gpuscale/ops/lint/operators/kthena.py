"""kthena: ModelBoosters, whose workers are containers.

Source: kthena v1.0 ModelBooster (`spec.backend.workers`).
"""

from gpuscale.ops.lint.operators.made import DEPLOYMENT, Making, fields, made, name_of
from gpuscale.ops.lint.parts import Part


def model_booster(whole: Part) -> Making:
    """Yield the pods of its workers."""
    for worker in whole.items("spec", "backend", "workers"):
        name = f"{name_of(whole)}-{worker.text('type')}"
        template = {"spec": {"containers": [fields(worker, "type", "replicas", "pods", "config")]}}
        yield made(worker, DEPLOYMENT, name, {"copies": worker.at("pods"), "template": template})
