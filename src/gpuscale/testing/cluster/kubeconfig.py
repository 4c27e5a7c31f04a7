"""A kubeconfig: the address of an API server, the CA to trust, and the user."""

import base64
import json
from pathlib import Path

from gpuscale.testing.cluster.certificates import KeyPair


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
