"""The simulated cluster's objects as an API server would store them."""
