"""The pulse: the time that each hop takes from load to a ready pod."""
