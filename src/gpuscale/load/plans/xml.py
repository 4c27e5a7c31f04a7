"""XML as a tree with line numbers, read within bounds: no document types, so no entities of its own."""

from dataclasses import dataclass, field
from xml.parsers import expat

from gpuscale.base.errors import ConfigError, Problem

MAX_BYTES = 32 * 1024 * 1024
MAX_ELEMENTS = 500_000
MAX_DEPTH = 200


@dataclass(slots=True)
class Element:
    """One element."""

    tag: str
    attributes: dict[str, str]
    line: int
    children: "list[Element]" = field(default_factory=list)
    text: str = ""

    def prop(self, name: str) -> str:
        """Return the text of the child whose attribute `name` this is, as JMeter keeps values."""
        return next((e.text.strip() for e in self.children if e.attributes.get("name") == name), "")

    def named(self, name: str) -> "Element | None":
        """Return the child element whose attribute `name` this is."""
        return next((e for e in self.children if e.attributes.get("name") == name), None)


class _Refused(Exception):
    """A refusal raised inside the parser."""


def parse_xml(text: str, source: str) -> Element:
    """Return the root of a text.

    Raises:
        ConfigError: it is no XML, has a document type, or is larger than the bounds.
    """
    if len(text) > MAX_BYTES:
        raise ConfigError(
            Problem(source, None, None, f"{len(text)} characters", f"at most {MAX_BYTES}")
        )
    root = Element("", {}, 1)
    stack = [root]
    count = 0
    parser = expat.ParserCreate()
    parser.buffer_text = True

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal count
        count += 1
        if count > MAX_ELEMENTS or len(stack) > MAX_DEPTH:
            raise _Refused(f"more than {MAX_ELEMENTS} elements, or {MAX_DEPTH} inside each other")
        element = Element(tag, attributes, parser.CurrentLineNumber)
        stack[-1].children.append(element)
        stack.append(element)

    def end(_tag: str) -> None:
        stack.pop()

    def data(text: str) -> None:
        stack[-1].text += text

    def doctype(*_: object) -> None:
        raise _Refused("a document type, which could declare entities")

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = data
    parser.StartDoctypeDeclHandler = doctype
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        reason = f"broken XML ({expat.ErrorString(error.code)})"
        raise ConfigError(Problem(source, error.lineno, None, reason, "a whole file")) from None
    except _Refused as error:
        line = parser.CurrentLineNumber
        raise ConfigError(Problem(source, line, None, str(error), "a plain XML file")) from None
    return root.children[0]
