# mypy: disable-error-code="arg-type"
"""An Azure Monitor workspace as the source of values: every client asks it with tokens, and only so."""

from pathlib import Path

import pytest
import pytest_asyncio

from azure_gate import ASSERTION, CLIENT, TENANT, azure_gate
from gpuscale.base.errors import UpstreamError
from gpuscale.ops.doctor.prometheus import PrometheusReader
from gpuscale.ops.doctor.snapshot import Snapshot
from gpuscale.server.metricsapi.prometheus_tls import make_source
from gpuscale.server.metricsapi.settings import read_settings
from gpuscale.server.scaler.settings import read_settings as read_scaler_settings
from gpuscale.server.sources.http.access import SourceAccess
from gpuscale.server.sources.http.entra import EntraToken
from gpuscale.server.sources.prometheus.identity import login_of
from gpuscale.testing.prometheus import serve

pytestmark = [pytest.mark.prometheus, pytest.mark.timeout(180)]

AT_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory):
    samples = [({"__name__": "DCGM_FI_DEV_GPU_UTIL", "pod": "chat-0"}, AT_MS, 62)]
    with serve(samples, tmp_path_factory.mktemp("workspace")) as found:
        yield found


@pytest_asyncio.fixture
async def azure(prometheus, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Yield it with what Azure's webhook puts into pods."""
    async with azure_gate(prometheus.url) as found:
        (tmp_path / "token").write_text(ASSERTION)
        for name, value in {
            "AZURE_POD_IDENTITY_AUTHORITY_HOST": found.url,
            "AZURE_AUTHORITY_HOST": found.url,
            "AZURE_CLIENT_ID": CLIENT,
            "AZURE_TENANT_ID": TENANT,
            "AZURE_FEDERATED_TOKEN_FILE": str(tmp_path / "token"),
        }.items():
            monkeypatch.setenv(name, value)
        yield found


def source_of(azure, server: str, *more: str):
    read = {"metrics-api": read_settings, "scaler": read_scaler_settings}[server]
    given = {"prometheus-url": azure.url, **dict(each.split("=") for each in more)}
    return make_source(read({name: [text] for name, text in given.items()}).source)


@pytest.mark.parametrize("identity", ["azure-workload", "azure-managed", f"azure-managed:{CLIENT}"])
@pytest.mark.parametrize("verb", ["GET", "POST"])
@pytest.mark.parametrize("server", ["metrics-api", "scaler"])
async def test_queries_carry_a_token(azure, server: str, verb: str, identity: str) -> None:
    flags = (f"prometheus-identity={identity}", f"prometheus-verb={verb}")
    async with source_of(azure, server, *flags) as source:
        for _ in range(3):
            value = await source.query("DCGM_FI_DEV_GPU_UTIL", AT_MS)
            assert [each.value for each in value.samples] == [62]
        (labels,) = await source.series("DCGM_FI_DEV_GPU_UTIL", AT_MS - 1000)
        assert labels["pod"] == "chat-0"
    assert (len(azure.issued), azure.refused) == (1, 0)


async def test_without_an_identity_it_is_refused(azure) -> None:
    async with source_of(azure, "metrics-api") as source:
        with pytest.raises(UpstreamError, match="unknown response code 401"):
            await source.query("1", AT_MS)
    assert azure.refused == 1


async def test_a_revoked_token_is_replaced_at_once_but_not_again_and_again(azure) -> None:
    async with source_of(azure, "metrics-api", "prometheus-identity=azure-workload") as source:
        await source.query("1", AT_MS)
        azure.revoked.add("secret-0")
        await source.query("1", AT_MS)
        assert (azure.issued, azure.refused) == (["secret-0", "secret-1"], 1)
        azure.revoked.add("secret-1")
        for _ in range(5):
            with pytest.raises(UpstreamError, match="401"):
                await source.query("1", AT_MS)
        assert azure.issued == ["secret-0", "secret-1"]


async def test_a_role_that_is_missing_is_said(azure) -> None:
    azure.has_role = False
    async with source_of(azure, "metrics-api", "prometheus-identity=azure-workload") as source:
        with pytest.raises(UpstreamError, match="unknown response code 403"):
            await source.query("1", AT_MS)


async def test_the_doctor_asks_it_too(azure) -> None:
    token = EntraToken(login_of("azure-workload", azure.url))
    look = await PrometheusReader(None, azure.url, SourceAccess(token=token)).read(
        Snapshot(AT_MS), AT_MS
    )
    assert (look.fault, look.refused, azure.refused) == ("", 0, 0)
    assert azure.issued == ["secret-0"]
    refused = await PrometheusReader(None, azure.url).read(Snapshot(AT_MS), AT_MS)
    assert refused.refused == 401
