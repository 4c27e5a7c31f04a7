"""An in-memory store of time series, and PromQL evaluated over it."""
