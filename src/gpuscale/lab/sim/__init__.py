"""The cluster in one process: pods, nodes and load on one time line, virtual or live."""
