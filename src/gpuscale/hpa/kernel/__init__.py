"""The HPA controller's arithmetic as numbers alone: no objects, no words, no I/O.

Every function takes and returns whole numbers, floats and tuples of them, so that numba compiles it as it
stands.
"""
