"""hey's `-o csv`: a row for each answer; requests without an answer are not in it.

Source: rakyll/hey 0.1.4 and 8985827, requester/print.go (csvTmpl); the columns are seconds.
"""

import csv
from collections.abc import Iterable

from gpuscale.load.results.types import MAX_REQUESTS, ReadResult, RequestResult, refuse

HEADER = (
    "response-time", "DNS+dialup", "DNS", "Request-write", "Response-delay", "Response-read",
    "status-code", "offset",
)  # fmt: skip


def read_hey(lines: Iterable[str], source: str) -> ReadResult:
    """Return the requests of hey's CSV.

    Raises:
        ConfigError: another header, a row that can't be read, or too many rows.
    """
    rows = csv.reader(lines)
    found = tuple(next(rows, ()))
    if found != HEADER:
        refuse(source, 1, None, ",".join(found), ",".join(HEADER))
    requests: list[RequestResult] = []
    for line, row in enumerate(rows, start=2):
        try:
            latency_s, offset_s, status = float(row[0]), float(row[7]), int(row[6])
        except (ValueError, IndexError):
            refuse(source, line, None, ",".join(row), "numbers in 8 columns")
        if not (0 <= latency_s < 1e6 and 0 <= offset_s < 1e9):
            refuse(source, line, None, ",".join(row), "times from 0 on")
        if len(requests) >= MAX_REQUESTS:
            refuse(source, line, None, "more rows", f"at most {MAX_REQUESTS}")
        requests.append(RequestResult(offset_s * 1000, latency_s * 1000, status < 400))
    note = "hey writes no row for a request without an answer; such failures are not shown"
    return ReadResult("hey", requests, has_epoch=False, notes=(note,))
