# mypy: disable-error-code="attr-defined"
"""Questions by POST: the plain way answers what is plain, and leaves the rest to the usual client."""

import asyncio
import json
from pathlib import Path

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from gpuscale.kube.client.client import KubeClient
from gpuscale.kube.client.errors import ApiStatusError, ApiUnreachableError
from gpuscale.kube.client.settings import KubeSettings

PATH = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class Server:
    """Answers with what it is given, and notes who asks and by which client."""

    def __init__(self) -> None:
        self.status, self.text, self.hangs = 201, '{"kind":"SubjectAccessReview"}', False
        self.asked = []

    async def answer(self, request):
        body = await request.json()
        agent = request.headers["User-Agent"].partition("/")[0]
        self.asked.append((agent, request.headers.get("Authorization"), body))
        if self.hangs:
            await asyncio.sleep(60)
        return web.Response(status=self.status, text=self.text, content_type="application/json")


@pytest.fixture
async def server():
    found = Server()
    app = web.Application()
    app.router.add_post(PATH, found.answer)
    async with TestServer(app) as running:
        found.url = str(running.make_url(""))
        yield found


def client(server, tmp_path, timeout_s=5.0, **user):
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server.url}}],
        "users": [{"name": "u", "user": user}],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return KubeClient(KubeSettings(kubeconfig=path, timeout_s=timeout_s))


async def test_a_token_goes_along_on_the_plain_way(server, tmp_path: Path) -> None:
    async with client(server, tmp_path, token="t") as api:
        for number in range(3):
            found = await api.ask(PATH, {"n": number})
            assert found == {"kind": "SubjectAccessReview"}
    assert [(auth, body) for _, auth, body in server.asked] == [
        ("Bearer t", {"n": number}) for number in range(3)
    ]
    assert {agent for agent, _, _ in server.asked} == {"Python"}


async def test_a_user_who_acts_as_another_goes_the_usual_way(server, tmp_path: Path) -> None:
    async with client(server, tmp_path, token="t", **{"as": "jane"}) as api:
        await api.ask(PATH, {})
    assert "Python" not in {agent for agent, _, _ in server.asked}


@pytest.mark.parametrize(
    ("status", "error"), [(401, ApiStatusError), (403, ApiStatusError), (503, ApiUnreachableError)]
)
async def test_a_refusal_has_the_usual_words(server, tmp_path: Path, status: int, error) -> None:
    server.status, server.text = status, json.dumps({"kind": "Status", "message": "because"})
    async with client(server, tmp_path, token="t") as api:
        with pytest.raises(error, match="because"):
            await api.ask(PATH, {})


async def test_no_json_is_an_error(server, tmp_path: Path) -> None:
    server.text = "<html>"
    async with client(server, tmp_path, token="t") as api:
        with pytest.raises(ApiUnreachableError, match="no JSON object"):
            await api.ask(PATH, {})


async def test_a_server_that_hangs_is_waited_for_once(server, tmp_path: Path) -> None:
    server.hangs = True
    async with client(server, tmp_path, timeout_s=0.2, token="t") as api:
        with pytest.raises(ApiUnreachableError):
            await api.ask(PATH, {})
    assert len(server.asked) == 1
