"""The examples for GitOps tools: their values, and the chart that they name."""

import re
from pathlib import Path

import pytest

from gpuscale import __version__
from gpuscale.base.documents.documents import load_documents
from gpuscale.ops.install.rendering import render
from gpuscale.ops.install.values import Values

ROOT = Path(__file__).parents[2]
FILE = re.compile(r"^```\w+ title=(\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLES = dict(FILE.findall((ROOT / "docs" / "gitops.md").read_text()))
LAYER = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"


def objects(name):
    return {each.data["kind"]: each.data for each in load_documents(EXAMPLES[name], name)}


def values_of_argo_cd():
    return objects("application.yaml")["Application"]["spec"]["source"]["helm"]["valuesObject"]


def values_of_flux():
    return objects("flux.yaml")["HelmRelease"]["spec"]["values"]


@pytest.mark.parametrize("values", [values_of_argo_cd, values_of_flux])
def test_the_values_make_an_installation(values) -> None:
    rendered = render(Values.model_validate(values()))
    (hpa,) = [each for each in rendered if each["kind"] == "HorizontalPodAutoscaler"]
    assert (hpa["spec"]["minReplicas"], hpa["spec"]["maxReplicas"]) == (2, 12)


def test_all_name_the_chart_that_is_released() -> None:
    source = objects("application.yaml")["Application"]["spec"]["source"]
    assert (source["chart"], source["targetRevision"]) == ("gpuscale", __version__)
    repository = objects("flux.yaml")["OCIRepository"]
    assert repository["spec"]["url"] == f"oci://{source['repoURL']}/{source['chart']}"
    assert repository["spec"]["ref"] == {"tag": __version__}
    assert repository["spec"]["layerSelector"]["mediaType"] == LAYER
    release = objects("flux.yaml")["HelmRelease"]
    assert release["spec"]["chartRef"]["name"] == repository["metadata"]["name"]
    terraform = dict(re.findall(r'^ +(\w+) += "(.+)"$', EXAMPLES["gpuscale.tf"], re.MULTILINE))
    assert terraform["repository"] == f"oci://{source['repoURL']}"
    assert (terraform["chart"], terraform["version"]) == ("gpuscale", __version__)


def test_the_namespaces_allow_what_the_renderers_namespace_allows() -> None:
    (namespace,) = [
        each
        for each in render(Values.model_validate(values_of_flux()))
        if each["kind"] == "Namespace"
    ]
    label = "pod-security.kubernetes.io/enforce"
    wanted = namespace["metadata"]["labels"][label]
    policy = objects("application.yaml")["Application"]["spec"]["syncPolicy"]
    assert policy["managedNamespaceMetadata"]["labels"] == {label: wanted}
    assert objects("flux.yaml")["Namespace"]["metadata"]["labels"] == {label: wanted}
    assert f'"{label}" = "{wanted}"' in EXAMPLES["gpuscale.tf"]
