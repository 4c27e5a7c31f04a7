"""The custom and external metrics API, served over HTTP from any metric source."""
