"""The Kubernetes client: kubeconfig, credentials, requests and their errors."""
