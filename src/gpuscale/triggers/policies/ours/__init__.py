"""gpuscale's own policies."""
