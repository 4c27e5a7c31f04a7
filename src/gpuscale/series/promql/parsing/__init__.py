"""The parser of PromQL: tokens, the grammar, what each part of it means, and the text in Prometheus' style.

It gives the error texts and places of Prometheus 3.16 (promql/parser), byte for byte.
"""
