"""Another HPA beside a real one, on its live data: what it would have done, cost and missed."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.ops.shadow.books import Shadow
    from gpuscale.ops.shadow.reading import ShadowReader, other_spec
    from gpuscale.ops.shadow.telling import shadow_document, shadow_lines, step_lines
else:
    __getattr__ = door(__name__)

__all__ = [
    "Shadow",
    "ShadowReader",
    "other_spec",
    "shadow_document",
    "shadow_lines",
    "step_lines",
]
