"""What a cluster does under load: an HPA, its pods, nodes and events; or what a running `up` does."""
