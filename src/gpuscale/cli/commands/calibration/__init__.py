"""The parts of `gpuscale calibrate`: what its options ask for, the run, and what comes of it."""
