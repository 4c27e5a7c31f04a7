"""An explanation as text and as a web page, made from the JSON form, which may have come over HTTP."""

import html
import json
from collections.abc import Iterator, Mapping
from typing import Any

from gpuscale.base.words import printable

_SIGNS = {"ok": "ok", "failed": "NO", "unknown": "??", "not reached": "-"}
_NOBODY = "nothing that was asked for"
_SHOWN = 20
"""Rows and names in the text; the document has more."""


def text_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Return the explanation line by line.

    Raises:
        AttributeError, KeyError, TypeError: the document is no explanation.
    """
    yield from map(printable, _lines(document))


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    yield from _headline(document)
    yield ""
    for hop in document["hops"]:
        yield from _hop_lines(hop)
    for title, lines in (
        ("Query", [document["query"]] if document["query"] else []),
        ("Rows", list(_row_lines(document))),
        ("Objects", list(_object_lines(document))),
        ("Answer", [_value_line(each) for each in document["values"][:_SHOWN]]),
    ):
        if lines:
            yield ""
            yield title
            yield from (f"  {line}" for line in lines)


def _headline(document: Mapping[str, Any]) -> Iterator[str]:
    failed = document["failedHop"]
    if failed is None:
        yield f"{document['asked']}: there is a value."
    else:
        yield f"{document['asked']}: no value. The first hop that gives nothing is: {failed}"


def _hop_lines(hop: Mapping[str, Any]) -> Iterator[str]:
    yield f"  {_SIGNS[hop['state']]:<3} {hop['hop']:<8} {hop['said']}".rstrip()
    yield from (f"{'':15}{line}" for line in hop["evidence"])
    if hop["fix"]:
        yield f"{'':15}-> {hop['fix']}"


def _row_lines(document: Mapping[str, Any]) -> Iterator[str]:
    for row in document["rows"][:_SHOWN]:
        inside = ", ".join(f"{name}={json.dumps(value)}" for name, value in row["labels"].items())
        whose = "" if row["object"] is None else f"  -> {row['object'] or _NOBODY}"
        yield f"{{{inside}}} {row['value']}  {age_text(row['ageMs'])} old{whose}"
    more = document["moreRows"] + len(document["rows"][_SHOWN:])
    if more:
        yield f"and {more} more"


def _object_lines(document: Mapping[str, Any]) -> Iterator[str]:
    for title in ("matched", "missed"):
        count, names = document[f"{title}Count"], document[title]
        if count:
            more = f" and {count - _SHOWN} more" if count > _SHOWN else ""
            yield f"{title} {count}: {', '.join(names[:_SHOWN])}{more}"


def _value_line(value: Mapping[str, Any]) -> str:
    return f"{value['of']}  {value['value']}  {age_text(value['ageMs'])} old"


def age_text(age_ms: int) -> str:
    """Return an age rounded for reading: 450 ms, 2.5 s, 12 min, 3 h."""
    if age_ms < 1000:
        return f"{age_ms} ms"
    for unit, length_ms, most in (("s", 1000, 120), ("min", 60_000, 120), ("h", 3_600_000, 72)):
        if age_ms < most * length_ms:
            amount = age_ms / length_ms
            return f"{amount:.1f} {unit}" if amount < 10 else f"{amount:.0f} {unit}"
    return f"{age_ms / 86_400_000:.0f} d"


def page(document: Mapping[str, Any]) -> str:
    """Return the explanation as a page for a browser, with nothing in it to load or to run."""
    title = html.escape(str(document["asked"]))
    lines = html.escape("\n".join(text_lines(document)))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"<title>Why: {title}</title></head>"
        f"<body><pre>{lines}</pre></body></html>\n"
    )
