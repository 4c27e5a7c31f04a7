# mypy: disable-error-code="arg-type, attr-defined"
"""What Helm renders of the chart, and how it differs from what `gpuscale render` writes."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from gpuscale.base.documents.documents import load_documents

CHART = Path(__file__).parents[3] / "charts" / "gpuscale"
HELM = shutil.which("helm", path=f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin")
needs_helm = pytest.mark.skipif(
    HELM is None and not os.environ.get("CI"), reason="needs helm, of the package helm-binary"
)


def template(spec, folder):
    (found,) = templates([{"spec": spec}], folder)
    return found


def templates(documents, folder):
    """What Helm renders of each values file, in one process: a chart that has ours once for each of them."""
    names = [f"case{number}" for number in range(len(documents))]
    (version,) = (each["version"] for each in parsed((CHART / "Chart.yaml").read_text()))
    needed = [{"name": "gpuscale", "version": version, "alias": name} for name in names]
    umbrella = {"apiVersion": "v2", "name": "all", "version": "1.0.0", "dependencies": needed}
    (folder / "charts").mkdir()
    shutil.copytree(CHART, folder / "charts" / "gpuscale")
    (folder / "Chart.yaml").write_text(json.dumps(umbrella))
    values = dict(zip(names, documents, strict=True))
    (folder / "values.yaml").write_text(json.dumps(values))
    command = [HELM, "template", "any", folder, "--namespace=gpuscale"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = {name: [] for name in names}
    for part in re.split(r"^---\n# Source: ", done.stdout, flags=re.MULTILINE)[1:]:
        source, _, text = part.partition("\n")
        found[source.split("/")[2]] += [each.data for each in load_documents(text, source)]
    return [found[name] for name in names]


def by_name(objects):
    found = {}
    for each in objects:
        metadata = each["metadata"]
        name = (each["kind"], metadata.get("namespace"), metadata["name"])
        assert name not in found
        found[name] = each
    return found


@lru_cache(maxsize=256)
def parsed(text):
    return [document.data for document in load_documents(text, "file")]


def comparable(objects):
    """Objects by name; certificates differ each time, and the namespace is Helm's to make.

    Files of ConfigMaps count as the data that they hold: how YAML is broken into lines says nothing.
    """
    found = by_name(json.loads(json.dumps(objects)))
    for (kind, _, _), each in found.items():
        if kind == "ConfigMap" and "data" in each:
            each["data"] = {name: parsed(text) for name, text in each["data"].items()}
        if kind == "Secret" and "data" in each:
            each["data"] = sorted(each["data"])
        if kind == "APIService" and "caBundle" in each["spec"]:
            each["spec"]["caBundle"] = "..."
    return {name: each for name, each in found.items() if name[0] != "Namespace"}


def assert_same(found, wanted) -> None:
    assert list(differences(comparable(found), comparable(wanted))) == []


def differences(found: Any, wanted: Any, path: str = "") -> Iterator[tuple[str, object, object]]:
    """Yield the paths at which data differ, with what Helm has and what is wanted there."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        for key in found.keys() | wanted.keys():
            here, there = found.get(key, "absent"), wanted.get(key, "absent")
            yield from differences(here, there, f"{path}.{key}")
    elif isinstance(found, list) and isinstance(wanted, list) and len(found) == len(wanted):
        for index, (here, there) in enumerate(zip(found, wanted, strict=True)):
            yield from differences(here, there, f"{path}[{index}]")
    elif found != wanted:
        yield path, found, wanted
