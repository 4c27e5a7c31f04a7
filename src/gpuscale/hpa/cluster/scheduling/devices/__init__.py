"""Which devices of a node claims get: the allocator of dynamic resource allocation, with CEL selectors."""
