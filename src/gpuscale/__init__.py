"""gpuscale scales GPU workloads on Kubernetes by what their GPUs really do.

The promised Python API is the errors here and the modules that docs/api.md names: `gpuscale.hpa`,
`gpuscale.manifests`, `gpuscale.planning`, `gpuscale.readings`, `gpuscale.store` and `gpuscale.testing`;
`simulate` and `tune` stand here too. All else is private: it may change with any release.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuscale.base.errors import (
        BugError,
        ConfigError,
        GpuscaleError,
        NotFoundError,
        Problem,
        QueryError,
        UnavailableError,
        UpstreamError,
        UsageError,
    )
    from gpuscale.planning import simulate, tune

__version__ = "0.1.0"

__all__ = [
    "BugError",
    "ConfigError",
    "GpuscaleError",
    "NotFoundError",
    "Problem",
    "QueryError",
    "UnavailableError",
    "UpstreamError",
    "UsageError",
    "__version__",
    "simulate",
    "tune",
]

if not TYPE_CHECKING:  # hidden from type checkers, which would take any name for one of ours

    def __getattr__(name: str) -> object:
        # Every process imports this module, so it loads other modules on demand only.
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name in {"simulate", "tune"}:
            from gpuscale import planning

            return getattr(planning, name)
        from gpuscale.base import errors

        return getattr(errors, name)
