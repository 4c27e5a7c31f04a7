"""What the caches of this process take, as metric families."""

from gpuscale.core.byte_cache import ACCOUNTANT
from gpuscale.exposition.families import Family
from gpuscale.metricsapi.telemetry.own_metrics import family


def cache_families() -> tuple[Family, ...]:
    """Return the bytes of each cache, and how many all of them may have together."""
    sizes = ACCOUNTANT.bytes_by_name()
    return (
        family(
            "cache_bytes",
            "gauge",
            "Bytes that a cache holds, as far as they are known.",
            {(("cache", name),): size for name, size in sizes.items()},
        ),
        family(
            "cache_limit_bytes",
            "gauge",
            "Bytes that all caches may hold together.",
            {(): ACCOUNTANT.most_bytes},
        ),
    )
