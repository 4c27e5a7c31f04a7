"""A live HPA as its controller sees it: read from a cluster, written down as a Decision document."""
