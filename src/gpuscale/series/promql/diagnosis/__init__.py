"""Where a PromQL text is wrong, in Prometheus' words.

The parser refuses a text without a place. These modules read a refused text once more, as far as its first
fault. They decide nothing: where they find no fault, the parser's own message stands, without a place.
"""
