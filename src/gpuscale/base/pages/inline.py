"""Pages that are one file: style, script and document stand in the markup, and nothing else may run.

The page's own modules are put one after the other into a single module script, because a browser
refuses to import modules beside a file that was opened from disk.
"""

import base64
import hashlib
import html
import json
from collections.abc import Iterable, Mapping
from string import Template

from gpuscale.base.pages.assets import static_text

_MODULES = (
    "dom.js",
    "format.js",
    "store.js",
    "events.js",
    "fragment.js",
    "axes.js",
    "plot.js",
    "lines.js",
    "legend.js",
    "pointing.js",
    "words.js",
    "saving.js",
    "charts.js",
    "finished.js",
)
"""Each after those that it imports."""


def render_page(template: str, module: str, document: Mapping[str, object], **parts: str) -> str:
    """Return a page of charts as one HTML text; the same document gives the same text.

    Args:
        template: the page file, with places for `style`, `script`, their hashes, `document` and `parts`.
        module: the page's own script, which reads the document and comes after the modules of charts.
        document: what the page shows; it stands in the page as JSON.
        parts: markup for the other places; its text is escaped by now.

    Raises:
        ValueError: a number of the document is not finite; JSON has no word for it.
    """
    style = static_text("style.css")
    script = "\n".join(_without_module_words(static_text(name)) for name in (*_MODULES, module))
    return Template(static_text(template)).substitute(
        parts,
        style=style,
        style_hash=hash_source(style),
        document=embeddable_json(document),
        script=script,
        script_hash=hash_source(script),
    )


def embeddable_json(document: Mapping[str, object]) -> str:
    """Return JSON that can be embedded in a script element, as no text in it can end the element.

    Raises:
        ValueError: a number is not finite.
    """
    text = json.dumps(document, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def totals_html(totals: Iterable[tuple[str, str]]) -> str:
    """Return names and texts as a list of large figures, with all text escaped."""
    rows = (
        f"<div><dt>{html.escape(name)}</dt><dd>{html.escape(text)}</dd></div>"
        for name, text in totals
    )
    return f'<dl class="totals">{"".join(rows)}</dl>'


def hash_source(text: str) -> str:
    """Return the Content-Security-Policy source that allows exactly this inline text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _without_module_words(source: str) -> str:
    """Return a module's text without its import and export lines."""
    lines = [line for line in source.splitlines() if not line.startswith("import ")]
    return "\n".join(line.removeprefix("export ") for line in lines)
