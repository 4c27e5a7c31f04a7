"""The wheels of the agent and of the servers hold their part of gpuscale, and depend on what that imports."""

import ast
import sys
import tomllib
from pathlib import Path

import pytest

import wheel_part

ROOT = Path(__file__).parents[3]
IMPORTED_AS = {
    "google-re2": "re2", "grpcio": "grpc", "grpcio-health-checking": "grpc_health",
    "grpcio-reflection": "grpc_reflection", "nvidia-ml-py": "pynvml", "opentelemetry-proto": "opentelemetry",
    "protobuf": "google", "pyopenssl": "OpenSSL", "pyyaml": "yaml",
}  # fmt: skip
OF_OTHERS = {"multidict": "aiohttp", "yarl": "aiohttp"}
"""Packages that come with another one for good: its own interface is made of them."""
NOT_IN_THE_CODE = {"bcrypt", "tzdata"}
"""Loaded by their names: the hash of passwords in the agent, time zones by Python's own library."""


def project_of(name):
    file = (
        ROOT / "pyproject.toml"
        if name == "gpuscale"
        else ROOT / "packages" / name / "pyproject.toml"
    )
    return tomllib.loads(file.read_text())


def requirements_of(project):
    extras = project["project"].get("optional-dependencies", {})
    return [
        *project["project"]["dependencies"],
        *(line for lines in extras.values() for line in lines),
    ]


def modules_of(name):
    wheel = project_of(name)["tool"]["hatch"]["build"]["targets"]["wheel"]
    hook = wheel["hooks"]["custom"]
    return wheel_part.modules_of(hook["roots"], hook["leave-out"])


def houses(modules):
    return {module.split(".")[1] for module in modules if "." in module}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpuscale-agent", {"agent", "base", "cli", "kube", "signals"}),
        (
            "gpuscale-server",
            {"base", "cli", "hpa", "kube", "series", "server", "signals", "triggers"},
        ),
    ],
)
def test_a_wheel_has_its_houses_and_no_other(name, expected) -> None:
    assert houses(modules_of(name)) == expected


@pytest.mark.parametrize("name", ["gpuscale-agent", "gpuscale-server"])
def test_what_a_wheel_imports_is_what_it_depends_on(name) -> None:
    imported = {
        each.split(".")[0]
        for module in modules_of(name)
        for each in wheel_part.imports(ast.parse(wheel_part.file_of(module).read_text()))
    }
    imported -= set(sys.stdlib_module_names) | {"gpuscale"}
    if name == "gpuscale-agent":
        imported.remove("typer")  # behind a look whether the registry of commands is installed
    required = {line.partition(">=")[0] for line in requirements_of(project_of(name))}
    expected = {IMPORTED_AS.get(each, each) for each in required} - NOT_IN_THE_CODE
    assert {OF_OTHERS.get(each, each) for each in imported} == expected


@pytest.mark.parametrize("name", ["gpuscale-agent", "gpuscale-server"])
def test_a_wheel_asks_for_the_versions_that_gpuscale_asks_for(name) -> None:
    assert set(requirements_of(project_of(name))) <= set(requirements_of(project_of("gpuscale")))
