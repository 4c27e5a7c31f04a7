"""The control plane's programs: pinned, fetched and built."""
