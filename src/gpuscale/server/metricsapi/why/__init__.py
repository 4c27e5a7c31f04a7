"""`?why`: how a metric got its value, or why it has none, step by step through one request.

Who may read a metric may ask why. What it shows besides names of metrics and rules is what such a request
would give: rows of other namespaces are counted, and their labels are not shown.
"""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.server.metricsapi.why.hops import WRONG_SELECTOR, Explanation, ServedValue
    from gpuscale.server.metricsapi.why.page import PARAMETER
    from gpuscale.server.metricsapi.why.text import text_lines
else:
    __getattr__ = door(__name__)

__all__ = ["PARAMETER", "WRONG_SELECTOR", "Explanation", "ServedValue", "text_lines"]
