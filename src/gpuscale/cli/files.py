"""Files that a command writes, which it names on standard error."""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from gpuscale.base.errors import UsageError
from gpuscale.base.whole_files import Content, replace_files


def output_formats(
    names: Iterable[str], suffixes: Sequence[str] = (".json", ".html")
) -> dict[str, str]:
    """Return the files to write and what each is to hold, as the first suffix says that its name ends in.

    Raises:
        UsageError: a name with none of the suffixes.
    """
    files: dict[str, str] = {}
    for name in names:
        suffix = next((each for each in suffixes if name.lower().endswith(each)), None)
        if suffix is None:
            expected = f"a name that ends in {', '.join(suffixes[:-1])} or {suffixes[-1]}"
            raise UsageError(f"--output-file: found {name!r}, expected {expected}")
        files[name] = suffix
    return files


def write_files(contents: Mapping[str, Content]) -> None:
    """Write every file beside its place, then move all there; a failure leaves what was there before.

    Raises:
        UnavailableError: the system could not write, as on a full disk.
    """
    replace_files(contents)
    for name in contents:
        print(f"wrote {name}", file=sys.stderr)


def names_from(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Return the paths of files as seen from a folder, with slashes; what is no file is not among them."""
    files = [name for name in names if Path(name).is_file()]
    return {
        name: Path(os.path.relpath(Path(name).resolve(), folder.resolve())).as_posix()
        for name in files
    }


def repository_root() -> Path:
    """Return the root of the Git repository that the current folder is in; otherwise the current folder."""
    here = Path.cwd()
    return next((each for each in (here, *here.parents) if (each / ".git").exists()), here)
