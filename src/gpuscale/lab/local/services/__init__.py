"""A scenario's services at real addresses: requests of any client become GPU work of simulated pods."""
