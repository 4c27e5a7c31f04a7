"""A language server for `gpuscale lint`: findings in an editor, when a file is opened or saved.

Source: Language Server Protocol 3.17 (base protocol, text document synchronization, publishDiagnostics).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

from gpuscale import __version__
from gpuscale.base.errors import ConfigError
from gpuscale.base.findings import Severity
from gpuscale.cli.linted import Linted

_LEVELS = {Severity.ERROR: 1, Severity.WARNING: 2, Severity.NOTE: 3}
_CAN = {"textDocumentSync": {"openClose": True, "save": True}}
_NO_SUCH_METHOD = -32601
_WHOLE_LINE = 10_000
"""Characters; a range may end beyond its line, and then ends with it."""

Message = Mapping[str, Any]


class LanguageServer:
    """Looks at the open files together, and at those that belong to them.

    Args:
        files: that belong to all open ones, such as rules.
        look: lints files.
        source: what the editor writes.
        sink: what the editor reads.
    """

    def __init__(
        self,
        files: Sequence[str],
        look: Callable[[Sequence[str]], Linted],
        source: BinaryIO,
        sink: BinaryIO,
    ) -> None:
        self._beside = [str(Path(each).resolve()) for each in files]
        self._look, self._source, self._sink = look, source, sink
        self._open: dict[str, None] = {}

    def serve(self) -> None:
        """Return when the editor ends."""
        while (message := self._read()) is not None and message.get("method") != "exit":
            match message.get("method"):
                case "initialize":
                    info = {"name": "gpuscale lint", "version": __version__}
                    self._answer(message, result={"capabilities": _CAN, "serverInfo": info})
                case "shutdown":
                    self._answer(message, result=None)
                case "textDocument/didOpen" | "textDocument/didSave":
                    self._open[_path(message)] = None
                    self._publish_all()
                case "textDocument/didClose":
                    self._open.pop(_path(message), None)
                    self._publish(_path(message), [])
                case _ if "id" in message and "method" in message:
                    fault = {"code": _NO_SUCH_METHOD, "message": "no such method"}
                    self._answer(message, error=fault)

    def _publish_all(self) -> None:
        names = dict.fromkeys((*self._beside, *self._open))
        found: dict[str, list[Message]] = {name: [] for name in names}
        try:
            linted = self._look([name for name in names if Path(name).is_file()])
        except ConfigError as error:
            for each in error.problems:
                found.setdefault(each.source, []).append(_diagnostic(each.line, 1, str(each)))
        else:
            for finding in linted.report.findings:
                check = finding.check
                said = "\n".join(filter(None, (finding.what, finding.evidence, finding.fix.say)))
                shown = _diagnostic(finding.where.line, _LEVELS[check.severity], said, check.id)
                found.setdefault(finding.where.file, []).append(shown)
        for name, diagnostics in found.items():
            if Path(name).is_absolute():  # what is none is no file, such as a rendered object
                self._publish(name, diagnostics)

    def _publish(self, name: str, diagnostics: Sequence[Message]) -> None:
        given = {"uri": Path(name).as_uri(), "diagnostics": diagnostics}
        self._write({"method": "textDocument/publishDiagnostics", "params": given})

    def _answer(self, message: Message, **outcome: object) -> None:
        self._write({"id": message["id"], **outcome})

    def _read(self) -> Message | None:
        """Return the next message; None at the end."""
        length = 0
        while (line := self._source.readline()).strip():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        body = self._source.read(length)
        message: Message | None = json.loads(body) if length and len(body) == length else None
        return message

    def _write(self, message: Message) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._sink.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        self._sink.flush()


def _path(message: Message) -> str:
    return str(Path(unquote(urlsplit(message["params"]["textDocument"]["uri"]).path)).resolve())


def _diagnostic(line: int | None, level: int, text: str, code: str = "") -> Message:
    at = (line or 1) - 1
    ends = {"line": at, "character": _WHOLE_LINE}
    return {
        "range": {"start": {"line": at, "character": 0}, "end": ends},
        "severity": level,
        "source": "gpuscale lint",
        "message": text,
        **({"code": code} if code else {}),
    }
