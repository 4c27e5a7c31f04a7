"""Keep samples in memory and ask for them with PromQL. Time is yours: the store reads no clock.

Prints:

    vision: 75.0 % on average, measured at 60 s
    refused: ...
"""

from gpuscale import QueryError
from gpuscale.store import ScrapeTarget, SeriesStore, Vector, instant

EXPOSITION = """\
DCGM_FI_DEV_GPU_UTIL{{gpu="0",pod="vision-0"}} {busy}
DCGM_FI_DEV_GPU_UTIL{{gpu="1",pod="vision-1"}} 90
"""

store = SeriesStore(retention_ms=600_000)
target = ScrapeTarget(store, {"job": "vision"})
for t_ms, busy in ((0, 30), (30_000, 60), (60_000, 90)):
    target.ingest(EXPOSITION.format(busy=busy), t_ms)

# The mean of (30 + 60 + 90) / 3 = 60 and of 90 is 75.
value = instant(store, "avg by (job) (avg_over_time(DCGM_FI_DEV_GPU_UTIL[90s]))", 60_000)
assert isinstance(value, Vector)
for sample in value.samples:
    print(
        f"{sample.labels['job']}: {sample.value} % on average, measured at {sample.measured_ms // 1000} s"
    )

try:
    instant(store, "sum(", 60_000)
except QueryError as error:
    print(f"refused: {error}")
