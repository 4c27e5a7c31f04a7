"""`gpuscale calibrate`: what one replica can take, and the value of its signal that says so."""
