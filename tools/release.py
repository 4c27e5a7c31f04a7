"""Makes and checks all that one version publishes; publishes nothing.

    python tools/release.py FOLDER
    python tools/release.py --entries FOLDER  # those of krew and Homebrew, for the programs in it

FOLDER then holds the wheels and source distributions, the chart, the stand-alone program of this machine's
architecture with its entries for krew and Homebrew, a bill of materials (CycloneDX) and the licences of each
part, the dashboards as Grafana.com takes them, and SHA256SUMS of everything. What is made twice has to be
the same to the byte, each part is installed by its lock with hashes alone, and each program has to start.

Times in the files are SOURCE_DATE_EPOCH, or the time of the commit.
"""

import gzip
import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from locks import LOCKS, fits

ROOT = Path(__file__).parents[1]
HERE = Path(sys.executable).parent
PROGRAM = "kubectl-gpuscale"
HOME = "https://github.com/gpuscale/gpuscale"
MOST_BYTES = 60_000_000
"""Of the stand-alone program's archive."""
FINE = {
    *(
        "Apache-2.0",
        "MIT",
        "MIT-0",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "ISC",
        "PSF-2.0",
        "0BSD",
        "Zlib",
    ),
    *("MPL-2.0", "Unlicense", "Python-2.0", "CC0-1.0"),
    *("BSD License", "MIT License", "Apache Software License"),
}
"""Names of licences under which a part of an image may come: SPDX', and of Python's classifiers."""
READ = {"protobuf": "BSD-3-Clause"}
"""Licences of distributions whose metadata names none, as their licence file has it."""
PARTS = {
    "agent": "packages/gpuscale-agent",
    "server": "packages/gpuscale-server",
    "all": ".",
    "command": ".",
}
"""Folder of each part that is installed by a lock of its name."""
CONSTANTS = {
    "AGENT_JOB": ("Job of the node agents", "gpuscale-node-agent"),
    "API_JOB": ("Job of the metrics API", "gpuscale-metrics-api"),
    "GPU_HOUR_PRICE": ("Price of a GPU for an hour", "2"),
    "NAMESPACE_LABEL": ("Label with a series' namespace", "namespace"),
    "POD_LABEL": ("Label with a series' pod", "pod"),
    "CONTAINER_LABEL": ("Label with a series' container", "container"),
}
"""What an installation fills into a dashboard, and Grafana asks for on import: label and usual value."""


def main() -> None:
    """Make everything in FOLDER, in place of what was there."""
    version = said(sys.executable, ROOT / "tools" / "release_version.py")
    match sys.argv[1:]:
        case ["--entries", given]:
            write_entries(Path(given), version)
            return
        case [given] if not given.startswith("-"):
            folder = Path(given).resolve()
        case _:
            sys.exit(__doc__)
    if wrong := [each for lock in LOCKS for each in fits(lock)]:
        sys.exit("\n".join(wrong))
    made_s = os.environ.get("SOURCE_DATE_EPOCH") or said("git", "log", "-1", "--format=%ct")
    os.environ["SOURCE_DATE_EPOCH"] = made_s
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch:
        wheels = folder / "python"
        build_python(wheels)
        build_python(again := Path(scratch) / "again")
        if differing := differences(wheels, again):
            sys.exit(f"not the same when built twice: {', '.join(differing)}")
        tell("python", f"{len(list(wheels.iterdir()))} files, the same when built twice")
        for part, source in PARTS.items():
            (wheel,) = wheels.glob(f"{wheel_name(source)}-{version}-*.whl")
            tell(part, install(part, wheel, version, Path(scratch) / part, folder))
        chart = folder / "chart"
        said(sys.executable, ROOT / "tools" / "chart_package.py", chart)
        tell("chart", f"gpuscale-{version}.tgz, and as an OCI layout")
        archive = build_program(folder / "program", version, int(made_s), Path(scratch))
        tell("program", f"{archive.name}, {archive.stat().st_size / 1e6:.0f} MB")
    write_entries(folder / "program", version)
    boards = write_boards(folder / "grafana")
    tell("grafana", f"{boards} dashboards, with what Grafana asks for on import")
    sums = "".join(
        f"{digest(path)}  {path.relative_to(folder).as_posix()}\n"
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    )
    (folder / "SHA256SUMS").write_text(sums, encoding="utf-8")
    tell("in all", f"{folder}; what takes accounts and other machines is in docs/releasing.md")


def build_python(folder: Path) -> None:
    """Build all wheels and source distributions, with the tools of the lock alone."""
    build = [HERE / "python", "-m", "build", "--no-isolation", "--outdir", folder]
    for source in (".", "packages/gpuscale-testing"):
        said(*build, ROOT / source)
    for part in ("agent", "server"):
        said(*build, "--wheel", ROOT / PARTS[part])


def wheel_name(source: str) -> str:
    """Return how a project's wheel begins."""
    text = (ROOT / source / "pyproject.toml").read_text(encoding="utf-8")
    return str(tomllib.loads(text)["project"]["name"]).replace("-", "_")


def differences(one: Path, other: Path) -> list[str]:
    """Return the names of files that two folders don't have the same."""
    names = {path.name for folder in (one, other) for path in folder.iterdir()}
    return sorted(
        name
        for name in names
        if not ((one / name).is_file() and (other / name).is_file())
        or digest(one / name) != digest(other / name)
    )


def install(part: str, wheel: Path, version: str, scratch: Path, folder: Path) -> str:
    """Install a part by its lock, start it, and write what it is made of and under which licences.

    Returns:
        What was found, for the reader.
    """
    lock = next(each for each in LOCKS if each.name == part)
    python = scratch / "bin" / "python"
    uv = HERE / "uv"
    said(uv, "venv", "--quiet", scratch)
    given = ("--quiet", "--python", python)
    said(uv, "pip", "install", *given, "--require-hashes", "--requirement", lock.path)
    said(uv, "pip", "install", *given, "--no-deps", wheel)
    said(uv, "pip", "check", *given)
    if (found := said(scratch / "bin" / "gpuscale", "--version")) != f"gpuscale {version}":
        sys.exit(f"{wheel.name}: found {found}, expected gpuscale {version}")
    sbom = folder / "sbom" / f"gpuscale-{part}-{version}.cdx.json"
    sbom.parent.mkdir(parents=True, exist_ok=True)
    options = ("--output-reproducible", "--output-format", "JSON", "--output-file", sbom)
    said(HERE / "cyclonedx-py", "environment", *options, python)
    licences = licences_of(json.loads(sbom.read_text(encoding="utf-8")))
    unfit = {name: found for name, found in licences.items() if not is_fine(found)}
    if unfit:
        sys.exit(f"{part}: licences that nobody has looked at: {unfit}")
    rows = "".join(f"| {name} | {found} |\n" for name, found in sorted(licences.items()))
    table = f"# Licences of gpuscale-{part} {version}\n\n| distribution | licence |\n| --- | --- |\n{rows}"
    sbom.with_name(f"gpuscale-{part}-{version}.licences.md").write_text(table, encoding="utf-8")
    return f"installed by hashes alone, {len(licences)} distributions, each licence known"


def licences_of(bill: Mapping[str, Any]) -> dict[str, str]:
    """Return each distribution of a bill of materials, with its version, and its licence in SPDX' words."""
    found = {}
    for each in bill["components"]:
        names = [
            entry.get("expression") or entry["license"].get("id") or entry["license"].get("name")
            for entry in each.get("licenses", ())
        ]
        # A distribution may carry its SPDX expression beside the names of its classifiers.
        known = [name for name in names if is_fine(name)]
        given = next(iter(known or names), READ.get(each["name"], "none named"))
        found[f"{each['name']} {each['version']}"] = given
    return found


def is_fine(licence: str) -> bool:
    """Return whether a part may come under this licence: one of `FINE`, or an expression of them."""
    if (named := licence.removeprefix("License :: OSI Approved :: ")) in FINE:
        return True
    words = named.replace("(", " ").replace(")", " ").split()
    return {word for word in words if word not in ("AND", "OR")} <= FINE


def build_program(folder: Path, version: str, made_s: int, scratch: Path) -> Path:
    """Build the stand-alone program as an archive, and start it from there."""
    spec = ROOT / "packages" / PROGRAM / f"{PROGRAM}.spec"
    places = ("--distpath", scratch / "dist", "--workpath", scratch / "work")
    flags = ("--noconfirm", "--log-level", "ERROR", *places)
    said(HERE / "pyinstaller", *flags, spec, env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}"})
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    archive = folder / f"{PROGRAM}-{version}-{platform.system().lower()}-{machine}.tar.gz"
    folder.mkdir(parents=True)
    shutil.copy(ROOT / "LICENSE", scratch / "dist" / PROGRAM)
    archive.write_bytes(packed(scratch / "dist", made_s))
    if archive.stat().st_size > MOST_BYTES:
        sys.exit(f"{archive.name}: found {archive.stat().st_size} bytes, expected {MOST_BYTES}")
    with tarfile.open(archive) as opened:
        opened.extractall(scratch / "unpacked", filter="data")
    # Beside a kubectl, it is called as its plugin is; the HPA of a scenario needs most of what is inside.
    path = f"{scratch / 'unpacked' / PROGRAM}:/usr/local/bin:/usr/bin:/bin"
    kubectl = shutil.which("kubectl", path=path)
    start = (kubectl, "gpuscale") if kubectl else (scratch / "unpacked" / PROGRAM / PROGRAM,)
    environment = {"PATH": path, "HOME": str(scratch)}
    if (found := said(*start, "--version", env=environment)) != f"gpuscale {version}":
        sys.exit(f"{archive.name}: found {found}, expected gpuscale {version}")
    said(*start, "simulate", "ack-bert-quick", env=environment)
    return archive


def packed(folder: Path, made_s: int) -> bytes:
    """Return a folder as a tar archive with a fixed time, owner and order."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in sorted(folder.rglob("*")):
            member = archive.gettarinfo(path, path.relative_to(folder).as_posix())
            member.mtime, member.uid, member.gid = made_s, 0, 0
            member.uname = member.gname = ""
            if path.is_file() and not path.is_symlink():
                with path.open("rb") as content:
                    archive.addfile(member, content)
            else:
                archive.addfile(member)
    return gzip.compress(plain.getvalue(), mtime=0)


def write_entries(folder: Path, version: str) -> None:
    """Write krew's and Homebrew's entries for the archives of a folder, whose names say their machines."""
    begin = f"{PROGRAM}-{version}-"
    archives = {
        tuple(path.name.removeprefix(begin).removesuffix(".tar.gz").split("-")): path
        for path in sorted(folder.glob(f"{begin}*.tar.gz"))
    }
    url = f"{HOME}/releases/download/v{version}/{{}}"
    plugin = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "gpuscale"},
        "spec": {
            "version": f"v{version}",
            "homepage": HOME,
            "shortDescription": "Says why GPU workloads do not scale",
            "description": (
                "Reads a cluster and says what is wrong between GPUs and replicas (doctor), what an HPA "
                "will do and why (decide), what GPUs do now (top), and what manifests get wrong (lint)."
            ),
            "platforms": [
                {
                    "selector": {"matchLabels": {"os": system, "arch": machine}},
                    "uri": url.format(path.name),
                    "sha256": digest(path),
                    "files": [{"from": f"{PROGRAM}/*", "to": "."}],
                    "bin": PROGRAM,
                }
                for (system, machine), path in archives.items()
            ],
        },
    }
    text = yaml.safe_dump(plugin, sort_keys=False, width=200)
    (folder / "gpuscale.yaml").write_text(text, encoding="utf-8")
    lines = [
        "class Gpuscale < Formula",
        '  desc "Scale GPU workloads on Kubernetes by what their GPUs really do"',
        f'  homepage "{HOME}"',
        f'  version "{version}"',
        '  license "Apache-2.0"',
    ]
    systems, machines = {"linux": "linux", "darwin": "macos"}, {"amd64": "intel", "arm64": "arm"}
    for (system, machine), path in archives.items():
        lines += [
            "",
            f"  on_{systems[system]} do",
            f"    on_{machines[machine]} do",
            f'      url "{url.format(path.name)}"',
            f'      sha256 "{digest(path)}"',
            "    end",
            "  end",
        ]
    lines += [
        "",
        "  def install",
        '    libexec.install Dir["*"]',
        f'    bin.install_symlink libexec/"{PROGRAM}" => "gpuscale"',
        f'    bin.install_symlink libexec/"{PROGRAM}"',
        "  end",
        "",
        "  test do",
        '    assert_match version.to_s, shell_output("#{bin}/gpuscale --version")',
        "  end",
        "end",
    ]
    (folder / "gpuscale.rb").write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_boards(folder: Path) -> int:
    """Write the dashboards with what Grafana asks for when they are imported; return how many."""
    folder.mkdir(parents=True)
    boards = sorted((ROOT / "charts" / "gpuscale" / "files" / "dashboards").glob("*.json"))
    for path in boards:
        board = board_to_share(path.read_text(encoding="utf-8"))
        (folder / path.name).write_text(json.dumps(board, indent=2) + "\n", encoding="utf-8")
    return len(boards)


def board_to_share(text: str) -> dict[str, Any]:
    """Return a dashboard whose installation's words are constants that Grafana asks for."""
    inputs = []
    for word, (label, usual) in CONSTANTS.items():
        if word in text:
            text = text.replace(word, f"${{VAR_{word}}}")
            name = f"VAR_{word}"
            inputs.append({"name": name, "type": "constant", "label": label, "value": usual})
    needs = [
        {"type": "grafana", "id": "grafana", "name": "Grafana", "version": "10.0.0"},
        {"type": "datasource", "id": "prometheus", "name": "Prometheus", "version": "1.0.0"},
    ]
    return {"__inputs": inputs, "__requires": needs, **json.loads(text)}


def digest(path: Path) -> str:
    """Return a file's SHA-256."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def said(*command: object, env: Mapping[str, str] | None = None) -> str:
    """Run a command in the repository; return what it printed, or end with what it said."""
    words = [str(each) for each in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT, env=env)
    if done.returncode:
        sys.exit(f"{' '.join(words)}: exit {done.returncode}\n{done.stdout}{done.stderr}".rstrip())
    return done.stdout.strip()


def tell(what: str, found: str) -> None:
    """Print a line of the result."""
    sys.stdout.write(f"{what:8} {found}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
