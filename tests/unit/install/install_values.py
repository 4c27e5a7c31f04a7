"""Values for tests: a small spec, changed where a case says so."""

from gpuscale.ops.install.certificates import make_certificate
from gpuscale.ops.install.rendering import RenderInputs, needs_certificate, render
from gpuscale.ops.install.values import Values

NOW_MS = 1_700_000_000_000


def scale(**changes):
    return {"workload": {"name": "vision-api"}, "target": 60, "maxReplicas": 8, **changes}


def values(**spec):
    return Values.model_validate({"spec": {"scale": [scale()], **spec}})


def rendered(found):
    certificate = make_certificate(found, NOW_MS) if needs_certificate(found) else None
    return render(found, RenderInputs(certificate))


def one(objects, kind, ending=""):
    (found,) = [
        each
        for each in objects
        if each["kind"] == kind and each["metadata"]["name"].endswith(ending)
    ]
    return found


def pod(workload):
    return workload["spec"]["template"]["spec"]


def container(workload):
    (found,) = pod(workload)["containers"]
    return found
