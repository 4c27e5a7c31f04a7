"""Saved samples: records, segments, and reading them back."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.series.saved.reading import Restored, SegmentReader
    from gpuscale.series.saved.records import (
        HEADER_BYTES,
        Record,
        SegmentHeader,
        TornSegmentError,
        UnusableSegmentError,
        encode_record,
        read_header,
        read_record,
    )
    from gpuscale.series.saved.writing import GroupNumbers, SegmentWriter
else:
    __getattr__ = door(__name__)

__all__ = [
    "HEADER_BYTES",
    "GroupNumbers",
    "Record",
    "Restored",
    "SegmentHeader",
    "SegmentReader",
    "SegmentWriter",
    "TornSegmentError",
    "UnusableSegmentError",
    "encode_record",
    "read_header",
    "read_record",
]
