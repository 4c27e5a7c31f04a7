"""HTTP for the node agent: server, TLS, passwords, negotiation and subscribers."""
