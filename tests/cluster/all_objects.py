"""Every object of a cluster, to compare it with a moment before."""

# Kinds in which Kubernetes itself makes and changes objects all the time.
RESTLESS = {"events", "leases", "endpoints", "endpointslices", "nodes", "podmetrics"}


def everything(plane):
    """Return every object's spec by kind, namespace and name, less what changes by itself."""
    listed = plane.kubectl("api-resources", "--verbs=list", "--output=name").split()
    names = [name for name in listed if name.split(".")[0] not in RESTLESS]
    found = {}
    for item in plane.get(",".join(names), "--all-namespaces")["items"]:
        metadata = item["metadata"]
        if item["kind"] == "Pod" and "deletionTimestamp" in metadata:
            continue  # on its way out, at a time of its own
        key = (item["kind"], metadata.get("namespace", ""), metadata["name"])
        found[key] = item.get("spec")
    return found
