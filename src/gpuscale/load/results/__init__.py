"""Results of other load tools on the timeline: hey, GuideLLM, AIPerf, inference-perf."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.load.results.aiperf import read_mooncake
    from gpuscale.load.results.reading import joined, read_result
    from gpuscale.load.results.types import RequestResult
else:
    __getattr__ = door(__name__)

__all__ = ["RequestResult", "joined", "read_mooncake", "read_result"]
