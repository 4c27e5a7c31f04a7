"""The pods of a node: the informer, their owners, and what attribution sees of them."""
