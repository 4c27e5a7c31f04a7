"""The search of `gpuscale tune`: what may change, what it comes to, and the best of it."""
