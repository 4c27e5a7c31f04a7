"""NIM, Grove and Dynamo: services, cliques and graphs, and the autoscalers in them.

Source: NVIDIA k8s-nim-operator v3.1 api/apps/v1alpha1 (NIMServiceSpec, Autoscaling, GetHPAParams,
    NIMPipelineSpec); Grove v0.1 operator/api/core/v1alpha1/podclique.go, podcliqueset.go
    (AutoScalingConfig); Dynamo v1.5 deploy/operator/api/v1alpha1 and v1beta1 (services and components,
    ResourceItem, MultinodeSpec, ScalingAdapter; `autoscaling` is ignored).
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from gpuscale.ops.lint.operators.made import (
    DEPLOYMENT,
    Made,
    Making,
    default,
    fields,
    hpa_of,
    made,
    name_of,
)
from gpuscale.ops.lint.operators.refusals import Ignored
from gpuscale.ops.lint.parts import Part

CLIQUE = "grove.io/v1alpha1", "PodClique"
GROUP = "grove.io/v1alpha1", "PodCliqueScalingGroup"
ADAPTER = "nvidia.com/v1alpha1", "DynamoGraphDeploymentScalingAdapter"


_COMPONENT = "nvidia.com/v1alpha1", "DynamoComponentDeployment"


def nim_service(whole: Part) -> Making:
    """Yield its Deployment and HPA."""
    spec, name = whole.at("spec"), name_of(whole)
    image = spec.at("image")
    if spec.fields(
        "resources"
    ):  # Without them, the operator takes as many GPUs as the model's profile says.
        container = {
            "name": name,
            "image": replace(image, data=f"{image.text('repository')}:{image.text('tag')}"),
            **{key: spec.at(key) for key in ("command", "args", "resources")},
        }
        of_pods = ("nodeSelector", "tolerations", "affinity", "runtimeClassName")
        pods = {**{key: spec.at(key) for key in of_pods}, "containers": [container]}
        meta = {"labels": spec.at("labels"), "annotations": spec.at("annotations")}
        template = {"metadata": meta, "spec": pods}
        yield made(spec, DEPLOYMENT, name, {"replicas": spec.at("replicas"), "template": template})
    if spec.at("scale", "enabled").data is True:
        yield hpa_of(spec.at("scale", "hpa"), DEPLOYMENT, name)


def nim_pipeline(whole: Part) -> Making:
    """Yield its NIMServices."""
    for service in whole.items("spec", "services"):
        if service.at("enabled").data is True:
            yield made(
                service.at("spec"),
                ("apps.nvidia.com/v1alpha1", "NIMService"),
                service.text("name"),
                fields(service.at("spec")),
            )


def clique(whole: Part) -> Making:
    """Yield a PodClique's HPA."""
    section = whole.at("spec", "autoScalingConfig")
    if section.fields():
        yield hpa_of(section, CLIQUE, name_of(whole))


def clique_set(whole: Part) -> Making:
    """Yield the PodCliques and scaling groups of the first replica."""
    # Grove numbers its sets' replicas; the first one stands for all.
    first = f"{name_of(whole)}-0"
    for each in whole.items("spec", "template", "cliques"):
        name = f"{first}-{each.text('name')}"
        yield made(each.at("spec"), CLIQUE, name, fields(each.at("spec")))
    for each in whole.items("spec", "template", "podCliqueScalingGroups"):
        name = f"{first}-{each.text('name')}"
        yield made(each, GROUP, name, {"replicas": default(each.at("replicas"), 1)})
        if each.fields("scaleConfig"):
            yield hpa_of(each.at("scaleConfig"), GROUP, name)


def graph(whole: Part) -> Making:
    """Yield the pods of each service or component."""
    for name in whole.fields("spec", "services"):
        service = whole.at("spec", "services", name)
        extra = service.at("extraPodSpec")
        main = extra.at("mainContainer")
        container = {"name": "main", **fields(main)}
        if service.fields("resources"):
            container["resources"] = {
                key: _resources(service.at("resources", key)) for key in ("requests", "limits")
            }
        pods = {
            **fields(extra, "mainContainer"),
            "containers": [container, *extra.items("containers")],
        }
        meta = {"labels": service.at("labels"), "annotations": service.at("annotations")}
        is_scaled = service.at("scalingAdapter", "enabled").data is True
        yield _component(service, name, {"metadata": meta, "spec": pods}, is_scaled=is_scaled)
    for component in whole.items("spec", "components"):
        template = fields(component.at("podTemplate"))
        is_scaled = component.at("scalingAdapter").data is not None
        yield _component(component, component.text("name"), template, is_scaled=is_scaled)


def ignored_in_graph(whole: Part) -> Iterator[Ignored]:
    """Yield limits that older releases scaled within."""
    for name in whole.fields("spec", "services"):
        scaling = whole.at("spec", "services", name, "autoscaling")
        if scaling.at("enabled").data is True:
            yield Ignored(
                scaling,
                f"Dynamo no longer reads autoscaling, so nothing scales {name}.",
                "Write scalingAdapter: {enabled: true}, and an HPA of the "
                f"DynamoGraphDeploymentScalingAdapter {name_of(whole)}-{name.lower()}.",
            )


def _component(
    section: Part, name: str, template: Mapping[str, object], *, is_scaled: bool
) -> Made:
    return made(
        section,
        ADAPTER if is_scaled else _COMPONENT,
        f"{name_of(section)}-{name.lower()}",
        {
            "replicas": section.at("replicas"),
            "copies": section.at("multinode", "nodeCount"),
            "template": template,
        },
    )


def _resources(item: Part) -> Mapping[str, object]:
    gpus = {item.text("gpuType") or "nvidia.com/gpu": item.at("gpu")}
    plain = {key: item.at(key) for key in ("cpu", "memory")}
    return {**plain, **gpus, **fields(item.at("custom"))}
