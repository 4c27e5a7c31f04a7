"""Becomes a container's program: `container_root.py SPEC`, in the networks and mounts of its pod.

The root is empty but for what an image has (programs and libraries, from this machine), the volumes, `/proc`
and `/dev`. The program keeps no capability where the container drops them all.
"""

import json
import os
import subprocess
import sys
from pathlib import Path


def mount(*arguments, check=True) -> None:
    subprocess.run(["mount", *map(str, arguments)], check=check)


def bind(source, target, *, read_only) -> None:
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    mount("--rbind", source, target)
    if read_only:
        mount("-o", "remount,bind,ro", target)


def build(spec, root) -> None:
    mount("-t", "tmpfs", "tmpfs", root)
    for name in ("bin", "sbin", "lib", "lib64"):
        if Path("/", name).is_symlink():
            (root / name).symlink_to(Path("/", name).readlink())
        elif Path("/", name).exists():
            bind(Path("/", name), root / name, read_only=False)
    for path in ("/proc", "/dev"):
        bind(Path(path), Path(f"{root}{path}"), read_only=False)
    (root / "tmp").mkdir()
    for source, target, read_only in spec["binds"]:
        bind(Path(source), Path(f"{root}{target}"), read_only=read_only)
    if spec["read_only_root"]:
        mount("-o", "remount,ro", root)


def main() -> None:
    spec = json.loads(Path(sys.argv[1]).read_text())
    root = Path(spec["root"])
    build(spec, root)
    os.chroot(root)
    os.chdir("/")
    dropped = ["--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
    words = ["/usr/bin/setpriv", *(dropped if spec["drops_capabilities"] else ()), *spec["command"]]
    os.execve(words[0], words, spec["env"])


if __name__ == "__main__":
    main()
