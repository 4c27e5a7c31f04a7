"""PromQL: parsed, evaluated over the store, and written."""
