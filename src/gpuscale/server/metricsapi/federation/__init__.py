"""Federation: other metrics APIs behind this one, and which of them owns a metric."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.server.metricsapi.federation.settings import (
        USUAL,
        MemberEntry,
        member_of,
        member_of_flag,
        together,
    )
else:
    __getattr__ = door(__name__)

__all__ = ["USUAL", "MemberEntry", "member_of", "member_of_flag", "together"]
