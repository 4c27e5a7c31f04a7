"""`make chart-package`: the chart as registries and Helm take it, checksums, and a signature."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from chart_registry import chart_registry
from gpuscale import __version__

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts" / "gpuscale"
HELM = shutil.which("helm", path=f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin")
pytestmark = pytest.mark.skipif(
    HELM is None and not os.environ.get("CI"), reason="needs helm, of the package helm-binary"
)
MADE_S = 1_700_000_000
VALUES = {
    "image": {"repository": "registry.example.com/gpuscale"},
    "scale": [{"workload": {"name": "vision-api"}, "target": 60, "maxReplicas": 12}],
}


def package(folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "tools" / "chart_package.py", folder, *arguments]
    environment = {"PATH": os.environ["PATH"], "SOURCE_DATE_EPOCH": str(MADE_S)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def helm(*arguments: str | Path, folder: Path) -> str:
    assert HELM is not None
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "TZ": "UTC"}
    done = subprocess.run(
        [HELM, *arguments],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    done = package(folder)
    assert (done.returncode, done.stderr) == (0, "")
    return folder


def archive(folder: Path) -> Path:
    return folder / f"gpuscale-{__version__}.tgz"


def content_of(folder: Path, described: dict[str, object]) -> bytes:
    """Return a blob of the layout, with the digest and the size that its description says."""
    algorithm, _, digest = str(described["digest"]).partition(":")
    content = (folder / "oci" / "blobs" / algorithm / digest).read_bytes()
    assert (hashlib.sha256(content).hexdigest(), len(content)) == (digest, described["size"])
    return content


def test_the_layout_holds_the_archive_under_its_digests(made: Path) -> None:
    assert json.loads((made / "oci" / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
    index = json.loads((made / "oci" / "index.json").read_text())
    (described,) = index["manifests"]
    assert described["annotations"] == {"org.opencontainers.image.ref.name": __version__}
    manifest = json.loads(content_of(made, described))
    assert manifest["config"]["mediaType"] == "application/vnd.cncf.helm.config.v1+json"
    (layer,) = manifest["layers"]
    assert layer["mediaType"] == "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
    assert content_of(made, layer) == archive(made).read_bytes()
    assert json.loads(content_of(made, manifest["config"]))["version"] == __version__


def test_helm_pushes_it_with_the_same_digest_and_pulls_it_back(made: Path, tmp_path: Path) -> None:
    (described,) = json.loads((made / "oci" / "index.json").read_text())["manifests"]
    with chart_registry() as registry:
        charts = f"oci://{registry.address}/charts"
        said = helm("push", archive(made), charts, "--plain-http", folder=tmp_path)
        assert f"Digest: {described['digest']}" in said
        pushed = registry.content[described["digest"]]
        assert pushed == content_of(made, described)
        by_digest = f"{charts}/gpuscale@{described['digest']}"
        helm("pull", by_digest, f"--version={__version__}", "--plain-http", folder=tmp_path)
    (pulled,) = tmp_path.glob("*.tgz")
    assert pulled.read_bytes() == archive(made).read_bytes()


def test_helm_renders_the_archive_as_it_renders_the_folder(made: Path, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(json.dumps({"spec": VALUES}))
    found = [
        helm("template", "any", chart, f"--values={values}", folder=tmp_path)
        for chart in (archive(made), CHART)
    ]
    assert found[0] == found[1]
    assert "kind: HorizontalPodAutoscaler" in found[0]


def test_it_is_the_same_each_time(made: Path, tmp_path: Path) -> None:
    assert package(tmp_path).returncode == 0
    (tmp_path / "SHA256SUMS.sig").write_text("of an earlier one")
    assert package(tmp_path).returncode == 0
    assert {each.name for each in tmp_path.iterdir()} == {each.name for each in made.iterdir()}
    assert (tmp_path / "SHA256SUMS").read_text() == (made / "SHA256SUMS").read_text()


def run(*command: str | Path, folder: Path) -> int:
    return subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode


@pytest.mark.parametrize("kind", ["EC", "RSA"])
def test_a_signature_holds_until_something_changes(tmp_path: Path, kind: str) -> None:
    key, public = tmp_path / "key.pem", tmp_path / "public.pem"
    of_kind = ["-pkeyopt", "ec_paramgen_curve:P-256"] if kind == "EC" else []
    generate: tuple[str | Path, ...] = (
        "openssl",
        "genpkey",
        "-algorithm",
        kind,
        *of_kind,
        "-out",
        key,
    )
    assert run(*generate, folder=tmp_path) == 0
    assert run("openssl", "pkey", "-in", key, "-pubout", "-out", public, folder=tmp_path) == 0
    folder = tmp_path / "chart"
    assert package(folder, key).returncode == 0
    verify = ("openssl", "dgst", "-sha256", "-verify", public, "-signature", "SHA256SUMS.sig")
    check = ("sha256sum", "--check", "--strict", "SHA256SUMS")
    assert run(*verify, "SHA256SUMS", folder=folder) == 0
    assert run(*check, folder=folder) == 0

    with archive(folder).open("ab") as changed:
        changed.write(b"\0")
    assert run(*check, folder=folder) == 1
    with (folder / "SHA256SUMS").open("a") as sums:
        sums.write(f"{'0' * 64}  another.tgz\n")
    assert run(*verify, "SHA256SUMS", folder=folder) == 1


def test_a_key_that_cannot_sign_leaves_no_signature(tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    missing = package(tmp_path / "a", key)
    assert (missing.returncode, "no such file" in missing.stderr) == (1, True)
    assert not (tmp_path / "a").exists()
    key.write_text("no key")
    wrong = package(tmp_path / "b", key)
    assert (wrong.returncode, "openssl could not sign with it" in wrong.stderr) == (1, True)
    assert not (tmp_path / "b" / "SHA256SUMS.sig").exists()
