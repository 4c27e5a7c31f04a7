"""What touches the world: load that is sent, signals that are read, the cluster that is looked at."""
