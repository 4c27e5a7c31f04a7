"""`?why` without a running metrics API: the same page from rules and a source at hand."""
