"""The parser of PromQL: tokens, grammar, semantics, and formatting.

It gives the error texts and places of Prometheus 3.16 (promql/parser), byte for byte.
"""
