"""TLS, authentication, authorization and the guard in front of all requests."""
