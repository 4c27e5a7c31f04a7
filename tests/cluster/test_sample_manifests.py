"""The sample services' manifests, taken by a real API server where only restricted pods may run."""

import subprocess

import pytest

import samples

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster"), pytest.mark.timeout(300)]
FOLDERS = sorted(path.parent for path in samples.SERVICES.glob("*/manifests.yaml"))


@pytest.fixture(scope="module")
def namespace(plane):
    plane.kubectl("create", "namespace", "samples")
    for mode in ("enforce", "warn"):
        plane.kubectl("label", "ns", "samples", f"pod-security.kubernetes.io/{mode}=restricted")
    return "samples"


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_api_server_takes_them_without_a_warning(plane, namespace, folder) -> None:
    done = subprocess.run(
        [
            *("kubectl", f"--kubeconfig={plane.admin}", "apply", "-n", namespace),
            *("--dry-run=server", "--validate=strict", "-f", str(folder / "manifests.yaml")),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "created (server dry run)" in done.stdout
