"""Where metric values come from, and the prometheus-adapter rules that turn a request into a query."""
