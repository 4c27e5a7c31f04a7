"""Every object of a cluster, to compare it with a moment before."""

import time

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


def settled(plane, look=everything, quiet_s=5.0, timeout_s=90.0):
    """Return what `look` finds once nothing has appeared, changed or gone for `quiet_s`.

    The controllers of a cluster that has just started create objects for some seconds, service
    accounts and root certificates among them; a comparison that begins before then never ends.
    """
    deadline = time.monotonic() + timeout_s
    found, since = look(plane), time.monotonic()
    while time.monotonic() - since < quiet_s:
        assert time.monotonic() < deadline, f"the cluster changed for {timeout_s:g} s"
        time.sleep(0.25)
        now = look(plane)
        if now != found:
            found, since = now, time.monotonic()
    return found


def wait_until_as_before(plane, before, timeout_s=60.0, of=lambda objects: objects) -> None:
    """Wait until `of` the objects equals `before`; fail with what still differs."""
    deadline = time.monotonic() + timeout_s
    while (now := of(everything(plane))) != before:
        if time.monotonic() > deadline:
            keys = sorted(before.keys() | now.keys())
            differing = [key for key in keys if before.get(key, ...) != now.get(key, ...)]
            raise AssertionError(f"not as before after {timeout_s:g} s: {differing}")
        time.sleep(0.25)
