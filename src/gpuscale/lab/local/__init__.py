"""The whole loop live on this machine: simulated nodes, real servers between the hops."""
