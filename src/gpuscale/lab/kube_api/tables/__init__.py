"""Objects as the rows that `kubectl get` shows."""
