"""What serves metrics in a cluster: to HPAs, to KEDA and to people."""
