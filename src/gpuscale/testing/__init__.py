"""Stand-ins for what needs hardware, offered to our tests and to users' tests."""
