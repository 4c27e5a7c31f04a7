"""Everything without a GPU and a cluster: simulations, searches, the live loop, rehearsals."""
