"""How many nodes: pools that grow for pods that fit nowhere, and shrink once nodes stand empty."""
