"""gpuscale alone has no control plane for tests; gpuscale-testing brings it, under both of its names."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "packages" / "gpuscale-testing"
PASSED_ON = ("PIP_", "SSL_CERT_", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "HOME", "PATH")
FORMER_NAME = "from gpuscale.testing.cluster import ControlPlane; print(ControlPlane.__module__)"


def python(venv, *arguments, **environment):
    return subprocess.run(
        [venv / "bin" / "python", *arguments],
        env={"PATH": "/usr/bin:/bin", **environment},
        cwd=venv.parent,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def testing_package(plain_venv, tmp_path_factory: pytest.TempPathFactory):
    """Return a folder with gpuscale-testing, installed with the pip of the plain environment."""
    source = tmp_path_factory.mktemp("source") / "gpuscale-testing"
    shutil.copytree(SOURCE, source, ignore=shutil.ignore_patterns("__pycache__"))
    folder = tmp_path_factory.mktemp("installed")
    passed = {name: text for name, text in os.environ.items() if name.upper().startswith(PASSED_ON)}
    options = ["--quiet", "--no-deps", "--target", str(folder), str(source)]
    done = subprocess.run(
        [plain_venv / "bin" / "pip", "install", *options],
        env=passed,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_a_plain_installation_says_what_to_install(plain_venv) -> None:
    done = python(plain_venv, "-c", FORMER_NAME)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: found no module gpuscale_testing, which runs the control plane: install it "
        "with `pip install gpuscale-testing`, or in a checkout with `pip install ./packages/gpuscale-testing`"
    )


def test_a_plain_installation_has_nothing_of_it(plain_venv) -> None:
    (packages,) = (plain_venv / "lib").glob("python3.*/site-packages")
    assert (packages / "gpuscale" / "testing" / "cluster.py").is_file()
    assert list(packages.rglob("go.mod")) == []
    assert not (packages / "gpuscale_testing").exists()


def test_with_it_both_names_lead_to_the_control_plane(plain_venv, testing_package) -> None:
    done = python(plain_venv, "-c", FORMER_NAME, PYTHONPATH=str(testing_package))
    assert (done.returncode, done.stdout, done.stderr) == (0, "gpuscale_testing.plane\n", "")


def test_it_carries_the_pinned_versions(plain_venv, testing_package, tmp_path: Path) -> None:
    environment = {"PYTHONPATH": str(testing_package), "GPUSCALE_TOOLS": str(tmp_path)}
    done = python(plain_venv, "-m", "gpuscale_testing.tools", "where", **environment)
    assert done.returncode == 1, done.stderr  # nothing is built
    required = (SOURCE / "src/gpuscale_testing/modules/kubernetes/go.mod").read_text()
    lines = {line.split()[0]: line.split()[1] for line in done.stdout.splitlines()}
    assert f"k8s.io/kubernetes {lines['kube-apiserver']}" in required
    assert set(lines) >= {"etcd", "kube-scheduler", "prometheus-adapter", "keda", "eksctl"}
