"""Why a metric has the value it has, or none: the way of one request, followed hop by hop.

Who may read a metric may ask why. What it shows besides names of metrics and rules is what such a request
would give: rows of other namespaces are counted, and their labels are not shown.
"""
