"""Run a scenario with nodes that come sooner and later, and read when the new pod is ready.

Prints:

    nodes after 40s: ready 115 s after the load rose
    nodes after 100s: ready 175 s after the load rose
"""

import gpuscale

for node_time in ("40s", "100s"):
    run = gpuscale.simulate(
        "ack-bert", settings=[f"spec.nodePools[0].provisioningTime={node_time}"]
    )
    ready_s = run.summary["scaleOuts"]["loadToReadyTimeMax"]
    print(f"nodes after {node_time}: ready {ready_s:.0f} s after the load rose")
