"""The control plane in virtual time: controllers, scheduler, kubelet and node autoscaler."""
