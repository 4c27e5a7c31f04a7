"""A real API server takes what guides and pages of providers install: a dry run of each values file."""

import subprocess
import sys
from pathlib import Path

import pytest

from gpuscale_testing import find_definitions

sys.path.insert(0, str(Path(__file__).parents[1] / "stranger"))
import pages

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]

GPUSCALE = Path(sys.executable).parent / "gpuscale"
VALUES = [
    pytest.param(text, id=f"{pages.page_name(page)}:{name}")
    for page in pages.PAGES
    if page.parent.name in ("guides", "providers")
    for name, text in pages.files(page).items()
    if "\nkind: Values\n" in text
]


@pytest.fixture(scope="module")
def equipped(plane):
    """A control plane with kinds of the Prometheus Operator, AKS and KEDA, and the namespace of a page."""
    plane.kubectl("create", "namespace", "ml")
    for name in ("prometheus-operator", "keda"):
        plane.kubectl("apply", "--server-side", "-f", str(find_definitions(name)))
    # AKS has the operator's kinds in a group of its own.
    for each in find_definitions("prometheus-operator").glob("*.yaml"):
        text = each.read_text().replace("monitoring.coreos.com", "azmonitoring.coreos.com")
        plane.kubectl("apply", "--server-side", "-f", "-", stdin=text)
    plane.wait("crd", "condition=Established", "--all")
    return plane


@pytest.mark.parametrize("text", VALUES)
def test_the_api_server_takes_what_a_guide_installs(text, equipped, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(text)
    done = subprocess.run(
        [GPUSCALE, "install", values, "--dry-run", "server", "--kubeconfig", equipped.admin],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout.splitlines()[:1]) == (
        0,
        ["dry run: nothing was changed"],
    ), done.stdout + done.stderr
