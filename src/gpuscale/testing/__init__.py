"""Stand-ins for hardware, for our tests and users' tests."""
