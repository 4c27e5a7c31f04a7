"""Python packages that only some commands need."""

from gpuscale.core.errors import UsageError


def missing_extra(error: ImportError, extra: str) -> UsageError:
    """Return what to say where a command's package is not installed."""
    return UsageError(
        f"found no Python package {error.name}, expected gpuscale's optional ones; "
        f"install gpuscale[{extra}]"
    )
