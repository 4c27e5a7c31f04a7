"""Parsing of scraped and streamed samples, and storing them."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.series.scraping.scrape import ScrapeResult, ScrapeTarget
    from gpuscale.series.scraping.streamed import StreamedTarget
    from gpuscale.series.scraping.target import TargetSeries
else:
    __getattr__ = door(__name__)

__all__ = ["ScrapeResult", "ScrapeTarget", "StreamedTarget", "TargetSeries"]
