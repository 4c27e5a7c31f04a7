"""What fills the series in memory without a Prometheus: streams of node agents, and scrapes of the rest."""
