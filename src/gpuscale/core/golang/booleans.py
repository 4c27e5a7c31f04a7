"""Booleans as Go's strconv.ParseBool reads them."""

from collections.abc import Mapping
from types import MappingProxyType

GO_BOOLS: Mapping[str, bool] = MappingProxyType(
    {
        **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
        **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
    }
)
"""What each accepted text means; every other text is an error."""
