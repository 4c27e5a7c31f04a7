"""HPAs of custom resources: what lint calls an error, the controller does not scale."""

import asyncio
import sys
from pathlib import Path

import pytest

from gpuscale.base.clock import WallClock
from gpuscale.ops.doctor import Gatherer, GatherSettings
from gpuscale.ops.lint import lint
from gpuscale_testing import wait_until

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "lint"))
from custom_resource_cases import COUNTED, UNCOUNTED, definition, hpa_of

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.xdist_group("cluster"),
    pytest.mark.timeout(300),
]
KINDS = {
    "Plain": ("status: {}", "FailedGetScale"),
    "Uncounted": (UNCOUNTED, "InvalidSelector"),
    "Counted": (COUNTED, ""),
}
"""Subresources of a kind, and why the controller does not scale what is of it."""


def of_kind(text, kind):
    return text.replace("models", f"{kind.lower()}s").replace("Model", kind)


DEFINITIONS = {kind: of_kind(definition(scale), kind) for kind, (scale, _) in KINDS.items()}
HPAS = {kind: hpa_of("example.com/v1", kind, kind.lower()) for kind in KINDS}


@pytest.fixture(scope="module")
def cluster(plane):
    for kind, text in DEFINITIONS.items():
        name = kind.lower()
        plane.kubectl("apply", "-f", "-", stdin=text)
        plane.wait(f"crd/{name}s.example.com", "condition=Established")
        plane.kubectl("create", "namespace", name)
        head = f"apiVersion: example.com/v1\nkind: {kind}\nmetadata: {{name: {name}}}\n"
        body = f"{head}spec: {{size: 1}}\nstatus: {{size: 1, pods: app=web}}\n"
        plane.kubectl("apply", "-n", name, "-f", "-", stdin=body)
        plane.kubectl("apply", "-n", name, "-f", "-", stdin=HPAS[kind])
    return plane


@pytest.mark.parametrize("kind", KINDS)
def test_what_lint_says_is_what_the_controller_does(cluster, kind):
    def reasons():
        conditions = (
            cluster.get("hpa", "web", "-n", kind.lower()).get("status", {}).get("conditions")
        )
        return {each["reason"] for each in conditions or () if each["status"] == "False"}

    why = KINDS[kind][1]
    wait_until(lambda: why in reasons() if why else reasons() - {"InvalidSelector"}, "a verdict")
    files = lint([("hpa.yaml", HPAS[kind]), ("crd.yaml", DEFINITIONS[kind])]).findings

    async def look():
        async with cluster.client() as client:
            return await Gatherer(client, WallClock(), GatherSettings()).objects()

    live = lint([], cluster=asyncio.run(look())).findings
    ids = {each.check.id for each in live if f" {kind.lower()}/web" in each.where.file}
    assert {each.check.id for each in files} == ids == ({"no-scale-target"} if why else set())
