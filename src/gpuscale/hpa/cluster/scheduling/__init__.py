"""Will this pod fit on that node, and on which one does it go: the scheduler's filters and score."""
