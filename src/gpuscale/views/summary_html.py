"""The summary of a run as HTML: its single numbers, then its small tables."""

import html
from collections.abc import Mapping

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
