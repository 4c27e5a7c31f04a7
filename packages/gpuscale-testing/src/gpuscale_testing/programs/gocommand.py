"""The Go command: where it is, in which environment it runs, and what is said where it fails."""

import shutil
from collections.abc import Mapping

from gpuscale.base.errors import UnavailableError, UpstreamError

_OUTPUT_LINES = 15
_NETWORK_SIGNS = ("dial tcp", "proxyconnect", "i/o timeout", "no such host", "TLS handshake")
_DISK_SIGNS = ("no space left on device",)


def find_go(need: str, otherwise: str = "") -> str:
    """Return the path of the Go command.

    Args:
        need: what it is needed for, as the beginning of a sentence.
        otherwise: what helps without it, as the end of one.

    Raises:
        UnavailableError: there is none; says what to install.
    """
    go = shutil.which("go")
    if go is None:
        raise UnavailableError(
            f"{need}, and there is no `go` on PATH; install Go 1.26 or newer (https://go.dev/dl)"
            f"{otherwise}"
        )
    return go


def go_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without cgo and outside any Go workspace.

    A module that needs a newer release of Go gets it as a module, too.
    """
    return {**environment, "CGO_ENABLED": "0", "GOTOOLCHAIN": "auto", "GOWORK": "off"}


def go_error(failed: str, output: str) -> UnavailableError | UpstreamError:
    """Return the error for what Go said; the network and the disk are distinguished from all others.

    Args:
        failed: what can't be done, such as `etcd can't be built`.
        output: what Go printed.
    """
    tail = "\n".join(output.strip().splitlines()[-_OUTPUT_LINES:])
    if any(sign in output for sign in _NETWORK_SIGNS):
        return UnavailableError(
            f"{failed}: the Go module proxy does not answer. Check the network and "
            f"$GOPROXY, then run the command again; it goes on where it stopped. Go said:\n{tail}"
        )
    if any(sign in output for sign in _DISK_SIGNS):
        return UnavailableError(
            f"{failed}: the disk is full. Free some room, or set $GPUSCALE_TOOLS, "
            f"$GOCACHE, $GOMODCACHE and $TMPDIR to a larger disk. Go said:\n{tail}"
        )
    return UpstreamError(f"{failed}. Go said:\n{tail}")
