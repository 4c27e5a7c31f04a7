"""Readings as metric families, in the formats of dcgm-exporter, ACK and AMD."""
