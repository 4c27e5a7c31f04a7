"""The timeline of a load, hop by hop: as document, text and page."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.load.timeline.document import timeline_document
    from gpuscale.load.timeline.page import render_timeline
    from gpuscale.load.timeline.table import timeline_text
    from gpuscale.load.timeline.types import Timeline
else:
    __getattr__ = door(__name__)

__all__ = ["Timeline", "render_timeline", "timeline_document", "timeline_text"]
