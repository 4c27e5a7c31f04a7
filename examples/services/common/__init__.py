"""What the sample services share: the time that requests cost, and how they are served."""
