"""The documents of `gpuscale decide`: the state of an HPA read, decided, explained and compared."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.hpa.decisions.answers import answer, current_milli, deciding_event
    from gpuscale.hpa.decisions.comparison import Difference, differences
    from gpuscale.hpa.decisions.document_fields import MAX_SPAN_S
    from gpuscale.hpa.decisions.documents import (
        API_VERSION,
        KIND,
        DecisionRequest,
        decide_request,
        read_decision,
    )
    from gpuscale.hpa.decisions.notes import decision_notes
    from gpuscale.hpa.decisions.observed import metric_label, oldest_age_s
    from gpuscale.hpa.decisions.reported import ReportedStatus
else:
    __getattr__ = door(__name__)

__all__ = [
    "API_VERSION",
    "KIND",
    "MAX_SPAN_S",
    "DecisionRequest",
    "Difference",
    "ReportedStatus",
    "answer",
    "current_milli",
    "decide_request",
    "deciding_event",
    "decision_notes",
    "differences",
    "metric_label",
    "oldest_age_s",
    "read_decision",
]
