"""The node pools for EKS are what eksctl's own JSON schema takes."""

import itertools
import json

import pytest
import yaml
from jsonschema import Draft7Validator

from gpuscale.ops.install.rendering import pool_files
from gpuscale.ops.install.values import Values
from gpuscale_testing import find_definitions, missing_definitions

pytestmark = pytest.mark.cluster

POOL = {"cluster": "prod", "region": "eu-west-1", "instanceType": "g5.xlarge", "gpu": "nvidia-a10g"}
OPTIONS = tuple(
    {"spot": spot, "minNodes": least, **zone}
    for spot, least, zone in itertools.product((True, False), (0, 2), ({}, {"zone": "eu-west-1a"}))
)
PLUGINS = ({"enabled": False}, {"enabled": True, "replicas": 4})


@pytest.fixture(scope="module")
def eksctl():
    if reason := missing_definitions(["eksctl"]):
        pytest.skip(reason)
    schema = json.loads((find_definitions("eksctl") / "schema.json").read_text())
    Draft7Validator.check_schema(schema)
    return Draft7Validator(schema)


def cluster_config(options, plugin):
    spec = {"provider": "eks", "nodePool": {**POOL, **options}, "devicePlugin": plugin}
    (file,) = [
        each
        for each in pool_files(Values.model_validate({"spec": spec}))
        if each.name == "node-pool.yaml"
    ]
    return yaml.safe_load(file.text)


def complaints(eksctl, config):
    return [f"{error.json_path}: {error.message}" for error in eksctl.iter_errors(config)]


@pytest.mark.parametrize("plugin", PLUGINS, ids=str)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_eksctl_takes_every_node_group(eksctl, options, plugin) -> None:
    assert complaints(eksctl, cluster_config(options, plugin)) == []


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        pytest.param("maxsize", 3, "'maxsize' was unexpected", id="misspelt"),
        pytest.param("maxSize", "3", "'3' is not of type 'integer'", id="of another type"),
        pytest.param("amiFamily", "Ubuntu", "'Ubuntu' is not one of", id="not offered"),
    ],
)
def test_what_eksctl_does_not_know_is_refused(eksctl, field: str, value, told: str) -> None:
    config = cluster_config(OPTIONS[0], PLUGINS[0])
    config["managedNodeGroups"][0][field] = value
    assert [told in each for each in complaints(eksctl, config)] == [True]
