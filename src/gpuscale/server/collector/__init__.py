"""The process that follows targets, holds their series, and answers queries of them."""
