"""Certificates and kubeconfigs for one control plane, made with the `openssl` program (3.0 or newer).

P-256 keys: a whole set takes a quarter of a second.
"""

import base64
import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuscale.base.errors import UnavailableError, UpstreamError

_DAYS = "7"
"""No control plane of a test lives longer."""
_CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its key, as PEM files."""

    certificate: Path
    key: Path


class Authority:
    """A certificate authority that keeps what it signs in one folder.

    Raises:
        UnavailableError: there is no openssl program.
        UpstreamError: it failed.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self.pair = _pair(folder, name)
        _request(self.pair, _subject(name), ["-addext", "keyUsage=critical,keyCertSign,cRLSign"])

    @property
    def certificate(self) -> Path:
        """Return the authority's own certificate: what to trust."""
        return self.pair.certificate

    def client(self, name: str, groups: Sequence[str] = ()) -> KeyPair:
        """Return a pair that a client is `name` with; the API server takes groups from the subject."""
        pair = _pair(self._folder, _file_name("-".join((name, *groups))))
        usage = ["-addext", "extendedKeyUsage=clientAuth"]
        self._sign(pair, _subject(name, groups), usage)
        return pair

    def server(self, name: str, hosts: Sequence[str]) -> KeyPair:
        """Return a pair to serve with as any of these host names and IP addresses."""
        pair = _pair(self._folder, _file_name(name))
        alternatives = ",".join(f"{_host_kind(host)}:{host}" for host in hosts)
        usage = ["-addext", "extendedKeyUsage=serverAuth"]
        self._sign(pair, _subject(name), [*usage, "-addext", f"subjectAltName={alternatives}"])
        return pair

    def _sign(self, pair: KeyPair, subject: str, extensions: Sequence[str]) -> None:
        ca = ["-CA", str(self.pair.certificate), "-CAkey", str(self.pair.key)]
        leaf = ["-addext", "basicConstraints=critical,CA:FALSE"]
        _request(pair, subject, [*ca, *leaf, *extensions])


def signing_key(folder: Path) -> KeyPair:
    """Return a private key and, as its `certificate`, the public key alone: for tokens."""
    pair = KeyPair(folder / "tokens.pub", folder / "tokens.key")
    _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(pair.key))
    _openssl("ec", "-in", str(pair.key), "-pubout", "-out", str(pair.certificate))
    return pair


def _request(pair: KeyPair, subject: str, more: Sequence[str]) -> None:
    files = ["-keyout", str(pair.key), "-out", str(pair.certificate)]
    _openssl("req", "-x509", *_CURVE, "-nodes", "-days", _DAYS, "-subj", subject, *files, *more)


def _pair(folder: Path, name: str) -> KeyPair:
    return KeyPair(folder / f"{name}.pem", folder / f"{name}.key")


def _subject(name: str, groups: Sequence[str] = ()) -> str:
    parts = [*(("O", group) for group in groups), ("CN", name)]
    return "".join(f"/{kind}={_escaped(value)}" for kind, value in parts)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("/", "\\/").replace("+", "\\+")


def _file_name(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-." else "_" for letter in name)


def _host_kind(host: str) -> str:
    return "IP" if host.replace(".", "").isdigit() or ":" in host else "DNS"


def _openssl(*arguments: str) -> None:
    program = shutil.which("openssl")
    if program is None:
        raise UnavailableError(
            "certificates are made with the program openssl, which is not on PATH; "
            "install Debian's package openssl"
        )
    answer = subprocess.run(  # noqa: S603 - words of our own
        [program, *arguments], capture_output=True, text=True, check=False, timeout=30
    )
    if answer.returncode:
        raise UpstreamError(f"openssl {arguments[0]} failed: {answer.stderr.strip()}")


def write_kubeconfig(path: Path, server: str, ca: Path, user: KeyPair) -> Path:
    """Write a kubeconfig that stands on its own, and return its path.

    It is JSON, which every reader of kubeconfig files takes, as JSON is YAML.
    """
    name = path.stem
    credentials = {
        "client-certificate-data": _data(user.certificate),
        "client-key-data": _data(user.key),
    }
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "test",
                "cluster": {"server": server, "certificate-authority-data": _data(ca)},
            }
        ],
        "users": [{"name": name, "user": credentials}],
        "contexts": [{"name": name, "context": {"cluster": "test", "user": name}}],
        "current-context": name,
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(config, indent=2) + "\n")
    return path


def _data(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
