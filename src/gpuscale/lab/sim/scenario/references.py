"""Files named in a scenario, with one list of faults in all of them."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from gpuscale.base.documents.documents import Document, Path
from gpuscale.base.errors import ConfigError, NotFoundError, Problem
from gpuscale.base.objects.fields import Fields
from gpuscale.lab.sim.scenario import model as spec

R = TypeVar("R")
ReadFile = Callable[[str], str]
"""Returns the text of a file named in a scenario; raises NotFoundError with a reason."""


class References:
    """Reads files named in a scenario, and collects faults.

    Attributes:
        problems: all that were found.
    """

    def __init__(self, document: Document, read: ReadFile) -> None:
        self.problems: list[Problem] = []
        self._document = document
        self._read = read

    def note(
        self, path: Path, expected: str, *, found: str | None = None, fix: str | None = None
    ) -> None:
        """Record a fault, at a path below the scenario's `spec`."""
        self.problems.append(
            self._document.problem(("spec", *path), expected, found=found, fix=fix)
        )

    def fields(self, data: object, path: Path) -> Fields:
        """Return a mapping of the scenario as one of a manifest, to be read field by field."""
        return Fields(self._document, data, ("spec", *path), self.problems)

    def note_missing(self, kind: str, name: str, path: Path, known: Mapping[str, object]) -> None:
        """Record that the manifests lack an object."""
        there = ", ".join(known) or f"no {kind}"
        self.note(path, f"a {kind} of the manifests (there: {there})", found=repr(name))

    def text(self, ref: spec.FileRef | None, path: Path) -> tuple[str, str] | None:
        """Return a reference's text and the name to use in messages; None without one, or once noted."""
        if ref is None:
            return None
        if ref.inline is not None:
            return ref.inline, f"{self._document.source}#{path[0]}"
        return self.file(str(ref.file), (*path, "file"))

    def file(self, name: str, path: Path) -> tuple[str, str] | None:
        """Return a file's text and name; None after recording a fault."""
        try:
            return self._read(name), name
        except NotFoundError as error:
            found = str(error).replace("is a folder, expected a file", "a folder")
            self.note(path, "a file that can be read", found=found)
            return None

    def parsed(self, text: tuple[str, str] | None, parse: Callable[[str, str], R]) -> R | None:
        """Return a parsed text; None without one, or after recording its faults."""
        if text is None:
            return None
        try:
            return parse(*text)
        except ConfigError as error:
            self.problems.extend(error.problems)
            return None
