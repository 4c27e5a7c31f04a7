"""Readings of AMD GPUs through AMD SMI. Not yet run on hardware: held against the library's source only."""
