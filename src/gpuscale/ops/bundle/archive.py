"""The archive: redacted files within a bound of bytes, and a page that says what is in it and what is not."""

import io
import json
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import BinaryIO

from gpuscale.base.words import printable, rfc3339
from gpuscale.ops.bundle.redacting import Redactor

INDEX = "index.md"


@dataclass(frozen=True, slots=True)
class _File:
    name: str
    content: object
    """A text, or a document."""
    what: str


class Archive:
    """Collects files, the important ones first, and writes those that fit.

    Args:
        folder: that all files are in.
        now_ms: when it is taken.
        most_bytes: of all files before they are packed; those that don't fit are left out.
    """

    def __init__(self, folder: str, now_ms: int, most_bytes: int) -> None:
        self.left_out: dict[str, str] = {}
        """What is not in it, and why."""
        self._folder = folder
        self._now_ms = now_ms
        self._most_bytes = most_bytes
        self._files: list[_File] = []
        self._redactor = Redactor()

    def add(self, name: str, content: object, what: str) -> None:
        """Add a file: a text, or a document, which is written as JSON."""
        self._files.append(_File(name, content, what))

    def leave_out(self, name: str, why: object) -> None:
        """Say why something is not there."""
        self.left_out[name] = str(why)

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Yield the files, each without secrets, and the index at the end."""
        for each in self._files:  # remembers the secrets of all, for the texts of others
            if not isinstance(each.content, str):
                self._redactor.document(each.content)
        self._redactor.taken_out.clear()
        left = self._most_bytes
        rows = []
        for each in self._files:
            content = (
                self._redactor.text(each.content)
                if isinstance(each.content, str)
                else json.dumps(self._redactor.document(each.content), indent=1) + "\n"
            ).encode(errors="replace")
            if len(content) > left:
                self.left_out[each.name] = (
                    f"{len(content)} bytes, and {left} were left of {self._most_bytes}"
                )
                continue
            left -= len(content)
            rows.append(f"| {self._cell(each.name)} | {len(content)} | {self._cell(each.what)} |")
            yield each.name, content
        yield INDEX, self._index(rows).encode(errors="replace")

    def _index(self, rows: list[str]) -> str:
        taken = rfc3339(self._now_ms / 1000)
        lines = [
            "# Support archive of gpuscale",
            "",
            f"Taken at {taken}. It has names of namespaces, workloads, nodes and images, and addresses. "
            "It has no secrets: none was read, and what looks like one was taken out. Look through it "
            "before you send it.",
            "",
            *("| file | bytes | what it is |", "| --- | --- | --- |", *rows, ""),
        ]
        if self.left_out:
            lines += ["## Left out", "", "| what | why |", "| --- | --- |"]
            lines += [
                f"| {self._cell(name)} | {self._cell(why)} |" for name, why in self.left_out.items()
            ]
            lines.append("")
        taken_out = self._redactor.taken_out
        lines += ["## Taken out", "", f"`(redacted)` stands for {taken_out.total()} values:", ""]
        lines += [f"- {count} × {why}" for why, count in sorted(taken_out.items())]
        lines += [
            "",
            "Always taken out: Secrets, values of environment variables, annotations of other tools, "
            "`managedFields`, binary data.",
        ]
        return "\n".join(lines) + "\n"

    def _cell(self, text: str) -> str:
        return printable(self._redactor.text(text)).replace("|", "\\|")

    def writer(self, *, is_zip: bool) -> Callable[[BinaryIO], None]:
        """Return what writes the packed archive to an open file."""
        return self._write_zip if is_zip else self._write_tar

    def _write_tar(self, file: BinaryIO) -> None:
        with tarfile.open(fileobj=file, mode="w:gz") as packed:
            for name, content in self.files():
                entry = tarfile.TarInfo(f"{self._folder}/{name}")
                entry.size = len(content)
                entry.mtime = self._now_ms // 1000
                packed.addfile(entry, io.BytesIO(content))

    def _write_zip(self, file: BinaryIO) -> None:
        moment = datetime.fromtimestamp(self._now_ms / 1000, UTC).timetuple()[:6]
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
            for name, content in self.files():
                packed.writestr(
                    zipfile.ZipInfo(f"{self._folder}/{name}", moment),
                    content,
                    zipfile.ZIP_DEFLATED,
                )
