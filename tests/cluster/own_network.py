"""A network of a test's own, in which pods have addresses: namespaces of the Linux kernel, without root.

A test that needs one runs itself again inside. There the control plane listens on loopback as ever, pods get
addresses on a bridge, and nothing of it reaches the machine's own network.
"""

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

BRIDGE, GATEWAY, POD_BITS = "pods", "10.64.0.1", 16
_INSIDE = "GPUSCALE_TEST_INSIDE_OWN_NETWORK"
_PROGRAMS = ("unshare", "nsenter", "setpriv", "mount", "ip")
_UNSHARE = ("unshare", "--user", "--map-root-user", "--net", "--mount", "--kill-child")
_TRY = "ip link add try type bridge && mount -t tmpfs tmpfs /mnt"
ROOT = Path(__file__).parents[2]


def is_inside():
    return os.environ.get(_INSIDE) == "1"


def absent_programs():
    """Return what can be installed and is not there."""
    return [name for name in _PROGRAMS if shutil.which(name) is None]


@cache
def missing():
    """Return why there can be no network of one's own here; None where there can."""
    if absent := absent_programs():
        return f"needs {', '.join(absent)}; install Debian's packages util-linux and iproute2"
    done = subprocess.run([*_UNSHARE, "sh", "-c", _TRY], capture_output=True, text=True)
    said = done.stderr.strip()
    return f"needs the right to make namespaces of users and networks: {said}" if said else None


def run_inside(test, timeout_s) -> None:
    """Run a test again, inside; what it printed is shown where it fails."""
    pytest = (sys.executable, "-m", "pytest", "-n0", "-q", "-p", "no:cacheprovider")
    done = subprocess.run(
        [*_UNSHARE, *pytest, "-m", "cluster", test],
        cwd=ROOT,
        env={**os.environ, _INSIDE: "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def set_up() -> None:
    """Make the bridge; once, inside."""
    # Names of networks are files there; the folder of the machine is not ours.
    _run("mount", "-t", "tmpfs", "tmpfs", "/run")
    ip("link", "set", "lo", "up")
    ip("link", "add", BRIDGE, "type", "bridge")
    ip("addr", "add", f"{GATEWAY}/{POD_BITS}", "dev", BRIDGE)
    ip("link", "set", BRIDGE, "up")


def add_pod(name, address) -> None:
    """Make a pod's network, with an address that all others reach."""
    ip("netns", "add", name)
    ip("link", "add", f"v-{name}", "type", "veth", "peer", "name", "eth0", "netns", name)
    ip("link", "set", f"v-{name}", "master", BRIDGE, "up")
    ip("-n", name, "link", "set", "lo", "up")
    ip("-n", name, "addr", "add", f"{address}/{POD_BITS}", "dev", "eth0")
    ip("-n", name, "link", "set", "eth0", "up")
    ip("-n", name, "route", "add", "default", "via", GATEWAY)


def remove_pod(name) -> None:
    ip("netns", "del", name)


def in_pod(name):
    """Return the words before a command that is to run in a pod's network, with mounts of its own."""
    return ["nsenter", f"--net=/run/netns/{name}", "--", "unshare", "--mount"]


def add_service_address(address) -> None:
    ip("addr", "replace", f"{address}/32", "dev", "lo")


def ip(*arguments) -> None:
    _run("ip", *arguments)


def _run(*command) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
