"""HTTP servers of a scenario's services: real requests become GPU work of simulated pods."""
