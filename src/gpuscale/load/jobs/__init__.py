"""Load of Jobs on a cluster: N of one manifest, followed from their creation to their end, and removed."""
