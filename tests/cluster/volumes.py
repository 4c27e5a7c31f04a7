"""The volumes of a pod as folders, kept up as the kubelet does: a link is turned to a whole new folder."""

import base64
from itertools import count

_TOKEN_S = 3607
"""The kubelet's own."""
_numbers = count()


class MissingVolumeError(Exception):
    """What a volume is made of is not there; the pod waits for it."""


class Volumes:
    """Makes volumes.

    Args:
        api: a client that may read ConfigMaps and Secrets, and ask for tokens.
        folder: of all pods' volumes.
    """

    def __init__(self, api, folder) -> None:
        self._api = api
        self._folder = folder
        self._tokens = {}

    async def make(self, pod, node_root):
        """Return the folder of each volume of a pod; call it again to bring them up to date."""
        return {
            volume["name"]: await self._one(pod, volume, node_root)
            for volume in pod["spec"].get("volumes", ())
        }

    async def _one(self, pod, volume, node_root):
        if "hostPath" in volume:
            found = node_root / volume["hostPath"]["path"].lstrip("/")
            if volume["hostPath"].get("type") == "Directory" and not found.is_dir():
                raise MissingVolumeError(f"the node has no folder {volume['hostPath']['path']}")
            return found
        folder = self._folder / pod["metadata"]["uid"] / volume["name"]
        folder.mkdir(parents=True, exist_ok=True)
        if "emptyDir" not in volume:
            sources = volume["projected"]["sources"] if "projected" in volume else [volume]
            files = {}
            for source in sources:
                files |= await self._files(pod, source)
            turn_over(folder, files)
        return folder

    async def _files(self, pod, source):
        if "serviceAccountToken" in source:
            wanted = source["serviceAccountToken"]
            return {wanted["path"]: (await self._token(pod)).encode()}
        if "downwardAPI" in source:
            items = source["downwardAPI"]["items"]
            return {each["path"]: field(pod, each["fieldRef"]).encode() for each in items}
        if "configMap" in source:
            data = await self._data(pod, source["configMap"], "configmaps", "name")
            data = {name: text.encode() for name, text in data.items()}
            return _chosen(source["configMap"], data)
        data = await self._data(pod, source["secret"], "secrets", "secretName")
        data = {name: base64.b64decode(text) for name, text in data.items()}
        return _chosen(source["secret"], data)

    async def _data(self, pod, source, plural, name_field):
        name, namespace = source[name_field], pod["metadata"]["namespace"]
        found = await self._api.find(f"/api/v1/namespaces/{namespace}/{plural}/{name}")
        if found is None and not source.get("optional"):
            raise MissingVolumeError(f"there is no {plural} {namespace}/{name}")
        return (found or {}).get("data") or {}

    async def _token(self, pod):
        metadata = pod["metadata"]
        if metadata["uid"] not in self._tokens:
            account = f"serviceaccounts/{pod['spec']['serviceAccountName']}"
            bound = {key: metadata[key] for key in ("name", "uid")}
            bound = {"kind": "Pod", "apiVersion": "v1", **bound}
            body = {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"expirationSeconds": _TOKEN_S, "boundObjectRef": bound},
            }
            path = f"/api/v1/namespaces/{metadata['namespace']}/{account}/token"
            self._tokens[metadata["uid"]] = (await self._api.create(path, body))["status"]["token"]
        return self._tokens[metadata["uid"]]


def field(pod, reference):
    """Return a field of a pod as text."""
    value = pod
    for key in reference["fieldPath"].split("."):
        value = value[key]
    return str(value)


def turn_over(folder, files) -> None:
    """Have a folder hold these files, all of them changed at one moment.

    Source: kubernetes pkg/volume/util (atomic_writer.go): files are links through `..data`.
    """
    data = folder / "..data"
    if data.exists() and {each.name: each.read_bytes() for each in data.iterdir()} == files:
        return
    new = folder / f"..{next(_numbers)}"
    new.mkdir()
    for name, content in files.items():
        (new / name).write_bytes(content)
    (folder / "..next").symlink_to(new.name)
    (folder / "..next").replace(data)
    for name in files:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")
    for link in folder.iterdir():
        if not link.name.startswith("..") and link.name not in files:
            link.unlink()


def _chosen(source, data):
    items = source.get("items")
    if items is None:
        return data
    return {each["path"]: data[each["key"]] for each in items if each["key"] in data}
