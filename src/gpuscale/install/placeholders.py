"""Text files of the package whose placeholders are filled in: upper-case words such as `AGENT_JOB`.

The chart has the same files in `charts/gpuscale/files`, and fills them in with Helm's `replace`.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files


def filled_in(package: str, file: str, values: Mapping[str, str]) -> str:
    """Return the text of a package's file with a value in place of each placeholder.

    Args:
        package: its dotted name.
        file: name of the file.
        values: by placeholder; they must not need quotes where they go.
    """
    names = "|".join(map(re.escape, values))
    return re.sub(names, lambda found: values[found[0]], source_text(package, file))


@lru_cache
def source_text(package: str, file: str) -> str:
    """Return the text of a package's file with its placeholders."""
    return (files(package) / file).read_text(encoding="utf-8")
