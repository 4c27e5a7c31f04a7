"""A node's pods: watches, owners, and the view for attribution."""
