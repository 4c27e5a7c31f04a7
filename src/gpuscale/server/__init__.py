"""The servers of metrics in a cluster: for HPAs, for KEDA and for people."""
