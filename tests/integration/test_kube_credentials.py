# mypy: disable-error-code="arg-type"
"""Programs that give credentials, against an API server over real HTTP: what they get, and what they say.

Expected behaviour is client-go's, tools and plugin/pkg/client/auth/exec.
"""

import json
import stat
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from gpuscale.kube.client.client import KubeClient
from gpuscale.kube.client.credentials import CredentialError
from gpuscale.kube.client.errors import ApiStatusError
from gpuscale.kube.client.settings import KubeSettings

_spec = spec_from_file_location(
    "fake_api_server", Path(__file__).parents[1] / "unit" / "kube" / "fake_api_server.py"
)
fake = sys.modules["fake_api_server"] = module_from_spec(_spec)
_spec.loader.exec_module(fake)

V1 = "client.authentication.k8s.io/v1"
V1BETA1 = "client.authentication.k8s.io/v1beta1"
PROGRAM = """#!{python}
import json, os, pathlib, sys
folder = pathlib.Path(sys.argv[1])
runs = folder / "runs.jsonl"
with runs.open("a") as file:
    seen = {{"info": json.loads(os.environ["KUBERNETES_EXEC_INFO"]), "extra": os.environ.get("EXTRA")}}
    print(json.dumps({{**seen, "args": sys.argv[2:]}}), file=file)
answers = (folder / "answers.jsonl").read_text().splitlines()
print(answers[min(len(runs.read_text().splitlines()), len(answers)) - 1])
"""


@pytest.fixture
async def server():
    server = fake.FakeApiServer()
    await server.start()
    yield server
    await server.stop()


class Cloud:
    """A kubeconfig whose user is a program, and what that program answers and sees."""

    def __init__(self, server, folder) -> None:
        self._server = server
        self._folder = folder

    def answers(self, *answers) -> None:
        text = "".join(
            f"{each if isinstance(each, str) else json.dumps(each)}\n" for each in answers
        )
        (self._folder / "answers.jsonl").write_text(text)

    def runs(self):
        path = self._folder / "runs.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def connection(self, version=V1, **program):
        path = self._folder / "login"
        path.write_text(PROGRAM.format(python=sys.executable))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        config = json.loads(self._server.kubeconfig(self._folder).read_text())
        config["users"][0]["user"] = {
            "exec": {
                "apiVersion": version,
                "command": "./login",
                "args": [str(self._folder), "get-token"],
                "env": [{"name": "EXTRA", "value": "x"}],
                "interactiveMode": "Never",
                **program,
            }
        }
        file = self._folder / "with-program"
        file.write_text(json.dumps(config))
        return KubeClient(KubeSettings(file))


@pytest.fixture
def cloud(server, tmp_path: Path):
    return Cloud(server, tmp_path)


async def ask(connection):
    return await connection.get(fake.POD, {"limit": "1"})


def credential(token, version=V1, **status):
    return {"apiVersion": version, "kind": "ExecCredential", "status": {"token": token, **status}}


@pytest.mark.parametrize("version", [V1, V1BETA1])
async def test_the_token_is_used_and_asked_for_once(server, cloud, version) -> None:
    server.token = "good"
    cloud.answers(credential("good", version))
    async with cloud.connection(version) as connection:
        await ask(connection)
        await ask(connection)
    (run,) = cloud.runs()
    assert run["info"] == {
        "apiVersion": version,
        "kind": "ExecCredential",
        "spec": {"interactive": False},
    }
    assert (run["extra"], run["args"]) == ("x", ["get-token"])


async def test_the_cluster_is_shown_to_a_program_that_asks_for_it(server, cloud) -> None:
    """As gke-gcloud-auth-plugin does."""
    server.token = "good"
    cloud.answers(credential("good"))
    async with cloud.connection(provideClusterInfo=True) as connection:
        await ask(connection)
    (run,) = cloud.runs()
    assert run["info"]["spec"]["cluster"]["server"] == connection.server


async def test_a_refused_token_is_asked_for_again_once(server, cloud) -> None:
    server.token = "good"
    cloud.answers(credential("old"), credential("good"))
    async with cloud.connection() as connection:
        await ask(connection)
    assert len(cloud.runs()) == 2


async def test_a_token_that_stays_refused_is_an_expired_login(server, cloud) -> None:
    server.token = "good"
    cloud.answers(credential("old"))
    async with cloud.connection() as connection:
        with pytest.raises(ApiStatusError, match="does not accept the credentials of context"):
            await ask(connection)
    assert len(cloud.runs()) == 2


async def test_a_token_that_has_run_out_is_not_used_again(server, cloud) -> None:
    server.token = "old"
    cloud.answers(
        credential("old", expirationTimestamp="2001-01-01T00:00:00Z"),
        credential("new", expirationTimestamp="2101-01-01T00:00:00Z"),
    )
    async with cloud.connection() as connection:
        await ask(connection)
        server.token = "new"
        await ask(connection)
        await ask(connection)
    assert len(cloud.runs()) == 2


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("nothing", "answered with something else than an object"),
        ("{}", "answered with something else than an object, expected an ExecCredential of"),
        (credential("t", V1BETA1), f"answered with kind 'ExecCredential' of '{V1BETA1}', expected"),
        (credential(""), "gave neither a token nor a certificate"),
        (
            credential("", clientCertificateData="x", clientKeyData="y"),
            "gave a certificate that can't be used",
        ),
    ],
)
async def test_an_answer_that_is_none_is_reported(cloud, answer, told: str) -> None:
    cloud.answers(answer)
    async with cloud.connection() as connection:
        with pytest.raises(CredentialError) as caught:
            await ask(connection)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("program", "told"),
    [
        (
            {"command": "no-such-login", "installHint": "Install the cloud's CLI."},
            "the kubeconfig's program no-such-login can't be run: No such file or directory\n"
            "Install the cloud's CLI.",
        ),
        (
            {"command": "sh", "args": ["-c", "echo please log in >&2; exit 3"]},
            "the kubeconfig's program sh ended with exit code 3: please log in; "
            "log in again, as for kubectl",
        ),
        (
            {"interactiveMode": "Always", "command": "sh"},
            "the kubeconfig's program sh wants a terminal to ask at, and there is none",
        ),
        (
            {"apiVersion": "client.authentication.k8s.io/v1alpha1", "command": "sh"},
            "the kubeconfig's program sh: found apiVersion "
            f"'client.authentication.k8s.io/v1alpha1', expected one of: {V1}, {V1BETA1}",
        ),
    ],
)
async def test_a_program_that_gives_none_is_reported(
    cloud, program, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", None)
    async with cloud.connection(**program) as connection:
        with pytest.raises(CredentialError) as caught:
            await ask(connection)
    assert str(caught.value) == told


async def test_whoever_acts_as_another_says_so(server, tmp_path: Path) -> None:
    config = json.loads(server.kubeconfig(tmp_path).read_text())
    config["users"][0]["user"] |= {"as": "jane", "as-groups": ["a", "b"], "as-uid": "7"}
    path = tmp_path / "as"
    path.write_text(json.dumps(config))
    async with KubeClient(KubeSettings(path)) as connection:
        headers = connection._client.headers
    assert headers["Impersonate-User"] == "jane"
    assert headers["Impersonate-Uid"] == "7"
    assert headers.get_list("Impersonate-Group") == ["a", "b"]
