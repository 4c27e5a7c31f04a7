"""What GPUs say: the fields, which of them to serve, readings, readers, and readings as metric families."""
