"""Presentations of a run: the live page, the report, terminal text."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.lab.views.decision import StyledLine, decision_lines
    from gpuscale.lab.views.report import render_report
    from gpuscale.lab.views.terminal import event_lines, state_text, summary_tables, summary_text
    from gpuscale.lab.views.tuned import render_tuned
else:
    __getattr__ = door(__name__)

__all__ = [
    "StyledLine",
    "decision_lines",
    "event_lines",
    "render_report",
    "render_tuned",
    "state_text",
    "summary_tables",
    "summary_text",
]
