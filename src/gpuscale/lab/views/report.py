"""A run's report: one self-contained HTML file."""

import html
from collections.abc import Mapping

from gpuscale.base.golang.durations import format_duration
from gpuscale.base.pages.inline import render_page, totals_html
from gpuscale.base.pages.words import label_text
from gpuscale.lab.views.summary import Rows, columns_of, row_cells, summary_groups, summary_totals


def summary_html(document: Mapping[str, object]) -> str:
    """Return the summary of a run document as HTML, with all text escaped."""
    totals = totals_html(summary_totals(document))
    tables = "".join(_table(title, rows) for title, rows in summary_groups(document))
    return f'{totals}<div class="tables">{tables}</div>'


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


def render_report(document: Mapping[str, object]) -> str:
    """Return the report as HTML; an equal document gives equal text.

    Args:
        document: a run document, as `simulate -o json` prints it.

    Raises:
        ValueError: a number of the document is not finite; JSON has no word for it.
    """
    scenario = str(document.get("scenario", "run"))
    return render_page(
        "report.html",
        "report.js",
        document,
        title=html.escape(f"{scenario} · gpuscale"),
        scenario=html.escape(scenario),
        description=html.escape(str(document.get("description") or "")),
        facts=html.escape(_facts(document)),
        summary=summary_html(document),
    )


def _facts(document: Mapping[str, object]) -> str:
    summary = document.get("summary")
    duration = summary.get("duration") if isinstance(summary, Mapping) else None
    facts = [f"seed {document['seed']}"] if "seed" in document else []
    if isinstance(duration, (int, float)):
        facts.append(f"{format_duration(round(duration * 1000))} of scenario time")
    return " · ".join(facts)
