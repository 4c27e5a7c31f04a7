"""What reads and changes a cluster: applying rendered objects, removing them, looking at what is there."""
