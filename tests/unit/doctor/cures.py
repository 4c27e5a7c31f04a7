"""Applies a printed command to a cluster's objects, as kubectl and the controllers behind it would."""

import json
import shlex

from clusters import OBJECTS

PLURALS = {
    "deployment": "deployments",
    "nodepool": "nodepools",
    "workloads.kueue.x-k8s.io": "queued-workloads",
}


def merged(body, patch):
    """Return an object after a JSON merge patch (RFC 7386)."""
    found = dict(body)
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        elif isinstance(value, dict):
            found[key] = merged(found.get(key) or {}, value)
        else:
            found[key] = value
    return found


def cured(objects, command):
    """Return the objects after `kubectl patch KIND NAME ... -p PATCH`; pods are made again from templates."""
    verb, kind, name, *options = shlex.split(command)[1:]
    assert verb == "patch"
    patch = json.loads(options[options.index("-p") + 1])
    found, plural = dict(objects), PLURALS[kind]
    found[plural] = [
        merged(each, patch) if each["metadata"]["name"] == name else each
        for each in objects.get(plural, OBJECTS.get(plural))
    ]
    if kind == "deployment":
        given = patch["spec"]["template"]["spec"]
        found["pods"] = [
            {
                **each,
                "metadata": {**each["metadata"], "name": f"{name}-again"},
                "spec": merged(each["spec"], given),
            }
            if not each["spec"].get("nodeName")
            else each
            for each in objects["pods"]
        ]
    return found
