"""The Helm chart, made from the renderer: objects for every combination of options, folded into templates.

Nothing about Kubernetes objects is written twice. `dimensions` names the options that objects depend on,
`placeholders` the fields that are passed through; `fold` keeps what all combinations have in common; `chart`
puts the files together. A test renders values with Helm and with `render`, and compares object by object.
"""
