"""Scraped and streamed samples on their way into the store."""
