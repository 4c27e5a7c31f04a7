"""Messages of the kubelet's pod-resources API; `make proto` makes them from `podresources.proto`."""
