"""Moves a pinned Kubernetes version: `python packages/gpuscale-testing/pin.py v1.37.2`.

Rewrites the go.mod of kubernetes, or of another folder that is named after the version, such as
kubernetes-1.36, which `hpa-differential` alone is built from a second time.

k8s.io/kubernetes refers to its staging folders by replace lines, which hold only in its own checkout, so
each is mapped to the release that it is published as (v1.N.P -> v0.N.P).
The other modules have no such lines; change their require line and run `go mod tidy` there.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
HEADER = """\
// The Kubernetes programs of the cluster tests. `go install PKG@VERSION` refuses a module with replace lines,
// so this module requires it and maps its staging folders to the releases that they are published as.
// Written by pin.py.
"""


def module_text(version: str, upstream: str) -> str:
    """Return our go.mod for a version, given the go.mod of k8s.io/kubernetes."""
    go = re.search(r"^go (\S+)$", upstream, re.MULTILINE)
    staging = re.findall(r"^\t(k8s\.io/\S+) => \./staging/", upstream, re.MULTILINE)
    if go is None or not staging:
        raise SystemExit(f"the go.mod of k8s.io/kubernetes {version} has no go line or no staging")
    published = version.replace("v1.", "v0.", 1)
    tools = "\n".join(f"\tk8s.io/kubernetes/cmd/{program}" for program in PROGRAMS)
    replaced = "\n".join(f"\t{name} => {name} {published}" for name in staging)
    return (
        f"{HEADER}module gpuscale.dev/tools/kubernetes\n\ngo {go[1]}\n\ntool (\n{tools}\n)\n\n"
        f"require k8s.io/kubernetes {version}\n\nreplace (\n{replaced}\n)\n"
    )


def upstream_module(version: str) -> str:
    """Return the go.mod of k8s.io/kubernetes, from wherever the user's Go gets its modules."""
    command = ["go", "mod", "download", "-json", f"k8s.io/kubernetes@{version}"]
    told = subprocess.run(command, capture_output=True, check=True, text=True).stdout  # noqa: S603 - the user's own Go
    return Path(json.loads(told)["GoMod"]).read_text()


def main(version: str, name: str = "kubernetes") -> None:
    """Write the go.mod and go.sum of a folder for a version such as v1.37.2."""
    if not re.fullmatch(r"v1\.\d+\.\d+", version):
        raise SystemExit(f"found {version!r}, expected a Kubernetes version such as v1.37.2")
    upstream = upstream_module(version)
    folder = Path(__file__).parent / "src" / "gpuscale_testing" / "modules" / name
    folder.mkdir(exist_ok=True)
    (folder / "go.mod").write_text(module_text(version, upstream))
    subprocess.run(["go", "mod", "tidy"], cwd=folder, check=True)  # noqa: S607 - the user's own Go


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        raise SystemExit("usage: python packages/gpuscale-testing/pin.py VERSION [FOLDER]")
    main(*sys.argv[1:])
