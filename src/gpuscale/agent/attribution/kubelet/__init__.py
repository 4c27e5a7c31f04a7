"""What the kubelet says: allocations of devices by its pod-resources API."""
