"""YAML parsed to plain data with line numbers.

Every file a user writes is read through here, so that every complaint can name its line. Reading is
bounded in size, refuses duplicate keys, and never builds anything but plain data.

Plain scalars mean what they mean to kubectl and Helm, where YAML's libraries differ: `1e3` is a number,
`12:30` and `2026-01-02` are text. Only `y` and `n` stay text here and are truth values there.

Source: go.yaml.in/yaml/v2 resolve.go, which kubectl, the API server and Helm read manifests with.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import yaml

from gpuscale.base.errors import ConfigError, Problem

MAX_TEXT_BYTES = 8 * 1024 * 1024
"""Larger than any real manifest bundle or rule file; a guard, not a promise."""
MAX_NODES = 500_000
"""Bounds what aliases can blow a small text up to."""
MAX_DEPTH = 300
"""Mappings and lists inside one another. The YAML library follows them on the stack, until it crashes."""
MAX_INTEGER_BITS = 1024
"""Far beyond any quantity; a number of thousands of digits can't even be printed again."""

_YAML_FAULTS = (
    ("cannot start any token", "a tab or a sign that no value begins with; indent with blanks"),
    (
        "mapping values are not allowed",
        "a ':' in text without quotes, or a line that is indented too far",
    ),
    ("quoted scalar found unexpected end", "a quotation mark that is not closed"),
    ("did not find expected node content", "a value is missing, or a bracket is not closed"),
    ("did not find expected ','", "a comma is missing, or a bracket is not closed"),
    ("did not find expected key", "a line is indented otherwise than those it belongs to"),
    ("did not find expected '-' indicator", "a '-' is missing, or a line is indented otherwise"),
    ("could not find expected ':'", "a key without a ':'"),
    ("found undefined alias", "an alias (*name) without its anchor (&name)"),
    (
        "found unknown escape character",
        "an unknown escape in double quotes; single quotes have none",
    ),
)
"""Parts of the YAML library's texts, and plain words for them; the first that fits counts."""
_DOCUMENT_START = re.compile(r"^---(?=\s|$)", re.MULTILINE)
_DEEP_INDENT = re.compile(rf"^[ ?:-]{{{MAX_DEPTH},}}", re.MULTILINE)
_BRACKETS = re.compile(r"[\[\]{}]")
_GO_TRUTHS = frozenset("yYnN")
"""Plain, they are truth values to kubectl; here they stay text."""
_RESOLVED_HERE = frozenset(f"tag:yaml.org,2002:{each}" for each in ("float", "int", "timestamp"))
_INTEGER = re.compile(
    r"[-+]?(0b[01][01_]*|0o?[0-7][0-7_]*|0x[0-9a-fA-F][0-9a-fA-F_]*|[1-9][0-9_]*|0)$"
)
_FLOAT = re.compile(
    r"([-+]?(\.[0-9][0-9_]*|[0-9][0-9_]*\.[0-9_]*)([eE][-+]?[0-9]+)?|[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+"
    r"|[-+]?0[0-9_]*[89][0-9_]*|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$"
)

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML document as plain data, with the line of every key and item."""

    source: str
    index: int
    """0-based position in its file."""
    data: object
    lines: Mapping[Path, int] = field(repr=False)

    def line(self, path: Path = ()) -> int | None:
        """Return the line of the value at `path`, or of the nearest parent that is there."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.lines:
                return self.lines[path[:length]]
        return None

    def problem(
        self, path: Path, expected: str, *, found: str | None = None, fix: str | None = None
    ) -> Problem:
        """Return a problem that names this document's file, line and field."""
        field = dotted(self.written(path)) or None
        return Problem(self.source, self.line(path), field, found, expected, fix)

    def written(self, path: Path) -> Path:
        """Return where the file has a value; elsewhere than here where this is made of another document."""
        return path


def dotted(path: Path) -> str:
    """Return a path as users write it: `spec.metrics[0].type`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


def parts_of(field: str) -> Path:
    """Return the path of a dotted field whose keys have no dots themselves."""
    parts = re.findall(r"\[(\d+)\]|([^.\[\]]+)", field)
    return tuple(int(index) if index else name for index, name in parts)


def load_documents(text: str, source: str) -> tuple[Document, ...]:
    """Return the documents of a YAML text; empty ones are left out.

    Raises:
        ConfigError: not YAML, a key given twice, or too large.
    """
    if len(text.encode(errors="replace")) > MAX_TEXT_BYTES:
        expected = f"at most {MAX_TEXT_BYTES // (1024 * 1024)} MiB of YAML"
        raise ConfigError(Problem(source, None, None, "a larger file", expected))
    documents: list[Document] = []
    try:
        _check_depth(text, source)
        loader = _Loader(text)
        while loader.check_node():
            builder = _Builder(loader, source)
            node = loader.get_node()
            data = None if node is None else builder.build(node, ())
            if data is not None:
                documents.append(Document(source, len(documents), data, builder.lines))
    except yaml.MarkedYAMLError as error:
        raise ConfigError(_yaml_problem(error, source)) from None
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError) as error:
        reason = str(error).split("\n", 1)[0]
        raise ConfigError(Problem(source, None, None, reason, "YAML text")) from None
    return tuple(documents)


def load_each(text: str, source: str) -> tuple[Document | ConfigError, ...]:
    """Return a text's YAML documents; an invalid one is replaced by its fault.

    A fault that is the whole text's, such as its size, is returned alone.
    """
    try:
        return load_documents(text, source)
    except ConfigError as error:
        starts = [0, *(found.start() for found in _DOCUMENT_START.finditer(text))]
        if len(starts) == 1 or len(text.encode(errors="replace")) > MAX_TEXT_BYTES:
            return (error,)
    found: list[Document | ConfigError] = []
    line = 0
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        part = text[start:end]
        found += _load_part(_DOCUMENT_START.sub("   ", part), source, line, len(found))
        line += part.count("\n")
    return tuple(found)


def _load_part(text: str, source: str, line: int, index: int) -> "list[Document | ConfigError]":
    """Return the documents in a part of a text, with line numbers of the whole."""
    try:
        documents = load_documents(text, source)
    except ConfigError as error:
        problems = (
            replace(each, line=None if each.line is None else each.line + line)
            for each in error.problems
        )
        return [ConfigError(*problems)]
    return [
        Document(source, index + i, d.data, {path: n + line for path, n in d.lines.items()})
        for i, d in enumerate(documents)
    ]


def _check_depth(text: str, source: str) -> None:
    """Refuse deeply nested text, without recursion.

    Raises:
        ConfigError: it is.
    """
    if not _may_be_deep(text):
        return
    depth = 0
    line: int | None = None
    try:
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            if depth > MAX_DEPTH:
                line = event.start_mark.line + 1 if event.start_mark else None
                break
        else:
            return
    except yaml.MarkedYAMLError as error:
        # The library reads ahead of its events, and its newer releases have a limit of their own.
        if "nesting depth" not in (error.problem or ""):
            raise
        line = error.problem_mark.line + 1 if error.problem_mark else None
    expected = f"at most {MAX_DEPTH} levels of mappings and lists"
    raise ConfigError(Problem(source, line, None, "a deeper nesting", expected))


def _may_be_deep(text: str) -> bool:
    """Return whether brackets or indentation may nest too deeply; quicker than parsing YAML."""
    if _DEEP_INDENT.search(text):
        return True
    depth = 0
    for bracket in _BRACKETS.finditer(text):
        depth = max(depth + (1 if bracket[0] in "[{" else -1), 0)
        if depth > MAX_DEPTH:
            return True
    return False


def dump_documents(documents: Iterable[object]) -> str:
    """Return plain data as readable YAML: keys in order, long texts as blocks."""
    return yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True)


def _yaml_problem(error: yaml.MarkedYAMLError, source: str) -> Problem:
    reason = " ".join(part for part in (error.context, error.problem) if part)
    plain = next((words for part, words in _YAML_FAULTS if part in reason), reason)
    mark = error.problem_mark or error.context_mark
    if "not closed" in plain and error.context_mark is not None:
        mark = (
            error.context_mark
        )  # The position of the opening quote; the library notices at the end of the file.
    where = f" (column {mark.column + 1})" if mark else ""
    line = mark.line + 1 if mark else None
    return Problem(source, line, None, None, f"not YAML{where}: {plain}")


class _Loader(yaml.CSafeLoader):
    """Resolves plain scalars to types as Go's YAML library does."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in _RESOLVED_HERE]
        for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
    }


_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", _INTEGER, list("-+0123456789"))


class _Dumper(yaml.CSafeDumper):
    """Writes multi-line texts as blocks, and repeated objects in full instead of as references."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _represent_text(dumper: yaml.CSafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    if _FLOAT.match(text) or _INTEGER.match(text) or text in _GO_TRUTHS:
        style = "'"  # such as 08, a text to PyYAML and a number to the loader above and to kubectl
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


class _Builder:
    """Builds plain data from YAML nodes, and records lines."""

    def __init__(self, loader: yaml.CSafeLoader, source: str) -> None:
        self.lines: dict[Path, int] = {}
        self._loader = loader
        self._source = source
        self._count = 0
        self._open: set[int] = set()
        """Mappings and lists that are being built, by identity."""

    def build(self, node: yaml.Node, path: Path) -> object:
        self._count += 1
        if self._count > MAX_NODES:
            raise ValueError(f"more than {MAX_NODES} values once aliases are followed")
        self.lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        if id(node) in self._open:
            raise self._fault(node, "an alias inside what it stands for", "one beside it")
        self._open.add(id(node))
        built: object
        if isinstance(node, yaml.MappingNode):
            built = self._mapping(node, path)
        else:
            built = [self.build(child, (*path, i)) for i, child in enumerate(node.value)]
        self._open.remove(id(node))
        return built

    def _scalar(self, node: yaml.ScalarNode) -> object:
        value: object = None
        try:
            value = self._loader.construct_object(node, deep=True)
            is_too_large = isinstance(value, int) and value.bit_length() > MAX_INTEGER_BITS
        except ValueError:  # Python limits integers to some thousand digits
            is_too_large = True
        if is_too_large:
            found = f"a whole number of more than {MAX_INTEGER_BITS} bits"
            raise self._fault(node, found, "a smaller one")
        return value

    def _fault(self, node: yaml.Node, found: str, expected: str) -> ConfigError:
        return ConfigError(Problem(self._source, node.start_mark.line + 1, None, found, expected))

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, object]:
        seen: dict[str, int] = {}
        for key_node, _ in node.value:
            key, line = self._key(key_node), key_node.start_mark.line + 1
            if key in seen and key != "<<":
                expected = f"each key once; it stands on line {seen[key]} already"
                raise ConfigError(Problem(self._source, line, dotted((*path, key)), None, expected))
            seen[key] = line
        self._loader.flatten_mapping(node)
        result: dict[str, object] = {}
        for key_node, value_node in node.value:
            key = self._key(key_node)
            self.lines[(*path, key)] = key_node.start_mark.line + 1
            result[key] = self.build(value_node, (*path, key))
        return result

    def _key(self, node: yaml.Node) -> str:
        """Return a key as text: `on` and `1` stay as written, the merge key is `<<`."""
        if not isinstance(node, yaml.ScalarNode):
            raise self._fault(node, "a key that is a list or a mapping", "a text")
        return str(node.value)
