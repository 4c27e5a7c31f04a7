"""Kubeconfig files are found and merged as kubectl does it; kubectl itself is asked where it is installed."""

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml

from gpuscale.base.errors import UsageError
from gpuscale.kube.client.kubeconfig import cluster_name, find_kubeconfigs, merged_kubeconfig
from gpuscale.kube.client.settings import KubeSettings


def config(names, current=None, **user):
    """Return a kubeconfig with a cluster, user and context for each name; its server is the name's."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": n, "cluster": {"server": f"https://{s}"}} for n, s in names.items()],
        "users": [{"name": name, "user": {"token": name, **user}} for name in names],
        "contexts": [
            {"name": name, "context": {"cluster": name, "user": name, "namespace": f"ns-{name}"}}
            for name in names
        ],
        **({"current-context": current} if current else {}),
    }


def written(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content))
    return path


def test_a_named_file_comes_first_and_need_not_exist(tmp_path: Path) -> None:
    assert find_kubeconfigs(tmp_path / "none", {"KUBECONFIG": "a"}) == (tmp_path / "none",)


def test_files_of_the_variable_that_exist_come_before_that_of_the_home(tmp_path: Path) -> None:
    usual = written(tmp_path / ".kube" / "config", config({"usual": "u"}))
    one, two = (written(tmp_path / name, config({name: name})) for name in ("one", "two"))
    environment = {"HOME": str(tmp_path)}
    assert find_kubeconfigs(None, environment) == (usual,)
    environment["KUBECONFIG"] = f"{one}:{tmp_path}/none::{two}"
    assert find_kubeconfigs(None, environment) == (one, two)


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({}, r"\$KUBECONFIG is not set, and ~/.kube/config does not exist"),
        ({"HOME": "/no"}, r"\$KUBECONFIG is not set, and /no/.kube/config does not exist"),
        ({"HOME": "/no", "KUBECONFIG": "/a:/b"}, r"\$KUBECONFIG names /a:/b, which does not exist"),
    ],
)
def test_without_any_file_it_says_where_it_looked(environment, told: str) -> None:
    with pytest.raises(UsageError, match=f"found no kubeconfig: {told}; name one with"):
        find_kubeconfigs(None, environment)


def files(folder):
    """Two files that share names: what is in the first counts, and its current context is empty."""
    relative = {"client-key": "key.pem", "client-certificate": "sub/c.pem", "token": ""}
    first = written(folder / "a" / "one", config({"same": "first", "ex": "ex"}, **relative))
    second = written(folder / "b" / "two", config({"same": "second", "why": "why"}, current="why"))
    return first, second


def test_of_entries_with_the_same_name_the_first_counts(tmp_path: Path) -> None:
    first, second = files(tmp_path)
    merged = merged_kubeconfig([first, second])
    servers = {each["name"]: each["cluster"]["server"] for each in merged["clusters"]}
    assert servers == {"same": "https://first", "ex": "https://ex", "why": "https://why"}
    assert merged["current-context"] == "why"
    assert merged["users"][0]["user"]["client-key"] == str(tmp_path / "a" / "key.pem")


@pytest.mark.kubectl
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_kubectl_merges_them_the_same_way(tmp_path: Path, order: tuple[int, ...]) -> None:
    both = files(tmp_path)
    chosen = [both[number] for number in order]
    variable = os.pathsep.join(map(str, chosen))
    view = ["kubectl", "config", "view", "--raw", "-o", "json"]
    environment = {**os.environ, "KUBECONFIG": variable}
    shown = json.loads(
        subprocess.run(view, env=environment, capture_output=True, check=True).stdout
    )
    ours = merged_kubeconfig(chosen)

    def named(data, key):
        return {each["name"]: each for each in data[key]}

    for key in ("clusters", "contexts"):
        assert named(ours, key) == named(shown, key)
    assert ours["current-context"] == shown["current-context"]
    for name, each in named(shown, "users").items():
        mine = {key: value for key, value in named(ours, "users")[name]["user"].items() if value}
        # `view` shows paths as they stand in the file.
        assert mine.keys() == each["user"].keys()
        assert all(value.endswith(each["user"][key]) for key, value in mine.items())


def test_a_cluster_is_named_by_server_context_and_namespace(tmp_path: Path) -> None:
    first, second = files(tmp_path)
    found = cluster_name(KubeSettings(first, None, (second,)))
    assert (found.server, found.context, found.namespace) == ("https://why", "why", "ns-why")
    assert str(found) == "https://why, context why"
    assert cluster_name(KubeSettings(first, "same", (second,))).server == "https://first"


def test_a_context_that_is_not_there_is_told_with_those_that_are(tmp_path: Path) -> None:
    first, second = files(tmp_path)
    with pytest.raises(UsageError) as caught:
        cluster_name(KubeSettings(first, "sane", (second,)))
    assert str(caught.value) == (
        f"{first}:{second}: no usable kubeconfig: found no context 'sane', "
        "expected one of: same, ex, why; did you mean same?"
    )


def test_a_program_that_gives_credentials_is_relative_to_its_file(tmp_path: Path) -> None:
    program = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "./login"}}
    path = written(tmp_path / "k" / "config", config({"c": "c"}, current="c", **program))
    merged = merged_kubeconfig([path])
    assert merged["users"][0]["user"]["exec"]["command"] == str(tmp_path / "k" / "login")
    bare = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "aws"}}
    path = written(tmp_path / "k" / "bare", config({"c": "c"}, current="c", **bare))
    assert merged_kubeconfig([path])["users"][0]["user"]["exec"]["command"] == "aws"
