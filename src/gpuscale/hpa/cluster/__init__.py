"""What Kubernetes does with pods and nodes besides the HPA: scheduling and node autoscaling; pure."""
