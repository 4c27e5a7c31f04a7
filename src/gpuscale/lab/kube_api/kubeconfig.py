"""A kubeconfig for a live run, without credentials or a namespace of the user."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NAME = "gpuscale-up"


@contextmanager
def written_kubeconfig(server: str) -> Iterator[Path | None]:
    """Write a kubeconfig into a private folder, which exists as long as the `with` block.

    Yields its path; None where there is no room for temporary files, which ends no run.
    """
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": _NAME,
        "clusters": [{"name": _NAME, "cluster": {"server": server}}],
        "users": [{"name": _NAME, "user": {}}],
        "contexts": [
            {"name": _NAME, "context": {"cluster": _NAME, "user": _NAME, "namespace": "default"}}
        ],
    }
    try:
        folder = tempfile.TemporaryDirectory(prefix="gpuscale-up-")
    except OSError:
        yield None
        return
    with folder as place:
        path = Path(place) / "kubeconfig"
        try:
            path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        except OSError:
            yield None
        else:
            yield path
