"""Recording and alerting rules over the store, as Prometheus evaluates them.

`load` reads rule files into groups (`groups`), whose rules are `recording` or `alerting` ones. A group asks
its queries one after the other and leaves evaluating them to its caller, so that the same rules run in
virtual time and beside an event loop. `restore` gives alerts back the time that they were pending before a
restart, `templates` fills in labels and annotations.
"""
