"""Samples as bytes that outlive the process: records, segments, and what is read back from them."""
