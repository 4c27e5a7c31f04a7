"""The report of a run: one HTML file that holds everything it needs.

The page's own modules are put one after the other into a single module script, because a browser
refuses to import modules beside a file that was opened from disk.
"""

import base64
import hashlib
import html
import json
from collections.abc import Mapping
from string import Template

from gpuscale.core.golang.durations import format_duration
from gpuscale.views.assets import static_text
from gpuscale.views.summary import Rows, columns_of, row_cells, summary_groups, summary_totals
from gpuscale.views.words import label_text


def summary_html(document: Mapping[str, object]) -> str:
    """Return the summary of a run document as markup, in which all text is escaped."""
    totals = "".join(
        f"<div><dt>{html.escape(name)}</dt><dd>{html.escape(text)}</dd></div>"
        for name, text in summary_totals(document)
    )
    tables = "".join(_table(title, rows) for title, rows in summary_groups(document))
    return f'<dl class="totals">{totals}</dl><div class="tables">{tables}</div>'


def _table(title: str, rows: Rows) -> str:
    columns = columns_of(rows)
    labels = [html.escape(label_text(column)) for column in columns]
    head = "".join(f'<th scope="col" class="number">{label}</th>' for label in labels)
    body = "".join(
        f'<tr><th scope="row">{html.escape(name)}</th>'
        + "".join(
            f'<td class="number" data-title="{label}">{html.escape(cell)}</td>'
            for label, cell in zip(labels, row_cells(columns, values), strict=True)
        )
        + "</tr>"
        for name, values in rows.items()
    )
    return (
        f'<div><h3>{html.escape(title)}</h3><div class="table-scroll"><table class="stacking">'
        f'<thead><tr><th scope="col">Name</th>{head}</tr></thead><tbody>{body}</tbody></table></div></div>'
    )


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
    "charts.js",
    "report.js",
)
"""Each after those that it imports."""


def render_report(document: Mapping[str, object]) -> str:
    """Return the report as one HTML text; the same document gives the same text.

    Args:
        document: a run document, as `simulate -o json` prints it.

    Raises:
        ValueError: a number of the document is not finite; JSON has no word for it.
    """
    scenario = str(document.get("scenario", "run"))
    style, script = static_text("style.css"), _script()
    return Template(static_text("report.html")).substitute(
        title=html.escape(f"{scenario} · gpuscale"),
        scenario=html.escape(scenario),
        description=html.escape(str(document.get("description") or "")),
        facts=html.escape(_facts(document)),
        summary=summary_html(document),
        style=style,
        style_hash=_hash_source(style),
        document=embeddable_json(document),
        script=script,
        script_hash=_hash_source(script),
    )


def embeddable_json(document: Mapping[str, object]) -> str:
    """Return JSON that can stand inside a script element: no text in it can end that element.

    Raises:
        ValueError: a number is not finite.
    """
    text = json.dumps(document, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _facts(document: Mapping[str, object]) -> str:
    summary = document.get("summary")
    duration = summary.get("duration") if isinstance(summary, Mapping) else None
    facts = [f"seed {document['seed']}"] if "seed" in document else []
    if isinstance(duration, (int, float)):
        facts.append(f"{format_duration(round(duration * 1000))} of scenario time")
    return " · ".join(facts)


def _hash_source(text: str) -> str:
    """Return the source that lets a Content-Security-Policy pass this inline text and no other."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _script() -> str:
    return "\n".join(_without_module_words(static_text(name)) for name in _MODULES)


def _without_module_words(source: str) -> str:
    """Return a module's text without its imports and exports; each stands on a line of its own."""
    lines = [line for line in source.splitlines() if not line.startswith("import ")]
    return "\n".join(line.removeprefix("export ") for line in lines)
