"""`gpuscale tune`: what it reads, what it asks, what it shows and writes."""
