# mypy: disable-error-code="arg-type, assignment, attr-defined"
"""Node agents with TLS and users as an installation has them, and who scrapes them with what it renders.

The arguments, the scrape job and the files of each mount are those of the rendered objects; a folder stands
in for each container's file system, and 127.0.0.1 for the pod's address.
"""

import asyncio
import importlib.util
import json
import re
import ssl
import subprocess
import sys
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import aiohttp
import bcrypt
import pytest
import yaml
from aiohttp.test_utils import unused_port

from gpuscale.cli.commands.doctor import _agent_access
from gpuscale.ops.doctor.agents import AgentReader
from gpuscale.ops.doctor.checks.access import unseen_parts
from gpuscale.ops.doctor.checks.node_agent import agent_findings
from gpuscale.ops.doctor.snapshot import Look, Snapshot
from gpuscale.ops.install.rendering import render
from gpuscale.ops.install.values import Values

pytestmark = pytest.mark.timeout(300)

GPUSCALE = Path(sys.executable).parent / "gpuscale"
NAME = "gpuscale-node-agent.gpuscale.svc"
"""The agents' Service, which the certificate is for."""
SPEC = {
    "agent": {
        "tls": {"secret": "agent-tls"},
        "basicAuth": {"usersSecret": "agent-users", "clientSecret": "agent-scraper"},
    }
}
RULES = """
rules:
- seriesQuery: DCGM_FI_DEV_GPU_UTIL
  resources: {overrides: {instance: {resource: node}}}
  name: {as: gpu_util}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""


def _load(name):
    path = Path(__file__).parents[1] / "unit" / "metricsapi" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CERTIFICATES = _load("certificates_for_tests")


def hashed(password):
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode()


class Installed:
    """An installation's objects, the Secrets that it names, and folders with what its containers mount."""

    def __init__(self, folder, **spec) -> None:
        self.folder = folder
        self.values = Values.model_validate({"spec": {**SPEC, **spec}})
        self.objects = render(self.values)
        self._ca = CERTIFICATES.Ca("agents")
        self.secrets = {"agent-tls": {"ca.crt": self._ca.pem}}
        self.renew()
        self.set_password("sesame")

    def renew(self) -> None:
        certificate, key = self._ca.server(NAME)
        self.secrets["agent-tls"] |= {"tls.crt": certificate, "tls.key": key}

    def set_password(self, password) -> None:
        self.secrets["agent-users"] = {"scraper": hashed(password)}
        self.secrets["agent-scraper"] = {"username": "scraper", "password": password}

    def one(self, kind, ending):
        (found,) = [
            each
            for each in self.objects
            if each["kind"] == kind and each["metadata"]["name"].endswith(ending)
        ]
        return found

    def pod(self, kind, ending):
        return self.one(kind, ending)["spec"]["template"]["spec"]

    def mount(self, kind, ending) -> None:
        """Write the files of each Secret and ConfigMap that a container mounts, as a kubelet does."""
        pod = self.pod(kind, ending)
        volumes = {each["name"]: each for each in pod["volumes"]}
        for mount in pod["containers"][0]["volumeMounts"]:
            volume = volumes[mount["name"]]
            for source in volume.get("projected", {}).get("sources", [volume]):
                for path, text in self._files(source).items():
                    self._write(f"{mount['mountPath']}/{path}", text)

    def _files(self, source):
        if "secret" in source:
            given = source["secret"]
            name = given.get("name") or given["secretName"]
            data = self.secrets.get(name, {})
        elif "configMap" in source:
            given = source["configMap"]
            data = self.one("ConfigMap", given["name"].removeprefix("gpuscale"))["data"]
        else:
            return {}
        items = given.get("items") or [{"key": key, "path": key} for key in data]
        return {each["path"]: data[each["key"]] for each in items if each["key"] in data}

    def _write(self, path, text) -> None:
        place = Path(self.here(path))
        place.parent.mkdir(parents=True, exist_ok=True)
        part = self.folder / "part"
        part.write_text(text)
        part.rename(place)

    def here(self, text):
        """Return a text with the folders of containers as they are here."""
        return text.replace("/etc/", f"{self.folder}/etc/")

    def agent(self, port):
        """Run the agent with its container's arguments, but for GPUs, pods and the address."""
        self.mount("DaemonSet", "node-agent")
        others = ("--gpu=", "--kubernetes", "--address=")
        (container,) = self.pod("DaemonSet", "node-agent")["containers"]
        given = [self.here(each) for each in container["args"] if not each.startswith(others)]
        return running(*given, "--gpu=simulated:NVIDIA H200:2", f"--address=127.0.0.1:{port}")

    def trusting(self):
        context = ssl.create_default_context(cadata=self._ca.pem)
        context.check_hostname = False
        return context


@asynccontextmanager
async def running(*arguments, program=GPUSCALE):
    process = await asyncio.create_subprocess_exec(
        program, *arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def until(ask, is_wanted, limit_s=60):
    """Return the first answer that is wanted; what does not answer yet is asked again."""
    found = None
    try:
        async with asyncio.timeout(limit_s):
            while True:
                try:
                    found = await ask()
                    if is_wanted(found):
                        return found
                except aiohttp.ClientError as error:
                    found = error
                await asyncio.sleep(0.1)
    except TimeoutError:
        pytest.fail(f"found {found}")


@pytest.fixture
async def session():
    async with aiohttp.ClientSession() as found:
        yield found


async def status_of(session, url, installed, **options):
    async with session.get(url, ssl=installed.trusting(), **options) as answer:
        return answer.status


async def test_probes_need_no_password_and_nothing_else_goes_without(tmp_path, session) -> None:
    installed, port = Installed(tmp_path), unused_port()
    (container,) = installed.pod("DaemonSet", "node-agent")["containers"]
    probes = [container[f"{each}Probe"]["httpGet"] for each in ("startup", "liveness", "readiness")]
    assert {each["scheme"] for each in probes} == {"HTTPS"}
    at = f"https://127.0.0.1:{port}"
    async with installed.agent(port):
        for each in probes:
            url = at + each["path"]
            await until(lambda url=url: status_of(session, url, installed), lambda s: s == 200)
        for path in ("/metrics", "/stream", "/readyz?verbose", "/", "/none"):
            assert await status_of(session, at + path, installed) == 401
        for password, status in (("wrong", 401), ("sesame", 200)):
            shown = {"Authorization": aiohttp.encode_basic_auth("scraper", password)}
            assert await status_of(session, f"{at}/metrics", installed, headers=shown) == status
        with pytest.raises(aiohttp.ClientError):
            await session.get(f"http://127.0.0.1:{port}/metrics")


def _username_in_the_file():
    """Return whether the Prometheus that is here reads a user's name from a file.

    It does so from 2.49 on, the first with github.com/prometheus/common v0.45.0.
    """
    done = subprocess.run(["prometheus", "--version"], capture_output=True, text=True, check=True)
    major, minor = re.search(r"version (\d+)\.(\d+)", done.stdout + done.stderr).groups()
    return (int(major), int(minor)) >= (2, 49)


def prometheus_config(installed, port):
    """Return the rendered configuration, with the agent's address in place of those that a cluster finds."""
    text = installed.one("ConfigMap", "-prometheus")["data"]["prometheus.yml"]
    jobs = yaml.safe_load(installed.here(text))["scrape_configs"]
    (job,) = [each for each in jobs if each["job_name"] == "gpuscale-node-agent"]
    del job["kubernetes_sd_configs"], job["relabel_configs"]
    if not _username_in_the_file():
        job["basic_auth"]["username"] = Path(job["basic_auth"].pop("username_file")).read_text()
    job |= {"scrape_interval": "500ms", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
    return yaml.safe_dump({"scrape_configs": [job]})


@pytest.mark.prometheus
async def test_prometheus_scrapes_on_through_a_new_certificate_and_password(
    tmp_path, session
) -> None:
    installed, port, asked = Installed(tmp_path), unused_port(), unused_port()
    installed.mount("Deployment", "-prometheus")
    config = tmp_path / "prometheus.yml"
    config.write_text(prometheus_config(installed, port))

    async def up():
        url = f"http://127.0.0.1:{asked}/api/v1/query"
        async with session.get(url, params={"query": "up"}) as answer:
            rows = (await answer.json())["data"]["result"]
        return [row["value"][1] for row in rows]

    flags = [f"--config.file={config}", f"--storage.tsdb.path={tmp_path}/data"]
    listening = f"--web.listen-address=127.0.0.1:{asked}"
    async with installed.agent(port), running(*flags, listening, program="prometheus"):
        await until(up, lambda found: found == ["1"])
        first = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))
        installed.renew()
        installed.mount("DaemonSet", "node-agent")

        async def shown():
            return await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))

        assert await until(shown, lambda found: found != first)
        assert await up() == ["1"]
        installed.set_password("changed")
        installed.mount("DaemonSet", "node-agent")
        await until(up, lambda found: found == ["0"])
        installed.mount("Deployment", "-prometheus")
        await until(up, lambda found: found == ["1"])


async def test_the_metrics_api_follows_streams_through_a_new_certificate_and_password(
    tmp_path, session
) -> None:
    installed = Installed(tmp_path, metricsApi={"source": "streams"})
    port, asked = unused_port(), unused_port()
    installed.mount("Deployment", "metrics-api")
    (container,) = installed.pod("Deployment", "metrics-api")["containers"]
    given = agent_access(container)
    (tmp_path / "rules.yaml").write_text(RULES)
    arguments = [
        "metrics-api",
        f"--config={tmp_path / 'rules.yaml'}",
        "--source=streams",
        f"--agent=https://127.0.0.1:{port}",
        *(installed.here(each).replace("$(AGENT_USERNAME)", "scraper") for each in given),
        "--secure-port=0",
        f"--insecure-loopback-port={asked}",
    ]
    path = f"/apis/custom.metrics.k8s.io/v1beta2/nodes/127.0.0.1:{port}/gpu_util"

    async def value():
        async with session.get(f"http://127.0.0.1:{asked}{path}") as answer:
            return answer.status, await answer.text()

    async with running(*arguments):
        async with installed.agent(port):
            _, text = await until(value, lambda found: found[0] == 200)
            assert len(json.loads(text)["items"]) == 1
        await until(value, lambda found: found[0] == 404)
        # The agent comes back with another certificate and another password, and so does the client's file.
        installed.renew()
        installed.set_password("changed")
        installed.mount("Deployment", "metrics-api")
        async with installed.agent(port):
            await until(value, lambda found: found[0] == 200)


def agent_access(container):
    """The arguments about who the agents are, and who asks."""
    named = ("--agent-ca-file", "--agent-server-name", "--agent-username", "--agent-password-file")
    return [each for each in container["args"] if each.startswith(named)]


@asynccontextmanager
async def following(installed, port):
    """Run a metrics API that follows an agent with the rendered arguments, and return what reads its log."""
    installed.mount("Deployment", "metrics-api")
    (installed.folder / "rules.yaml").write_text(RULES)
    (container,) = installed.pod("Deployment", "metrics-api")["containers"]
    given = agent_access(container)
    process = await asyncio.create_subprocess_exec(
        GPUSCALE,
        *("metrics-api", f"--config={installed.folder / 'rules.yaml'}", "--source=streams"),
        f"--agent=https://127.0.0.1:{port}",
        *(installed.here(each).replace("$(AGENT_USERNAME)", "scraper") for each in given),
        *("--secure-port=0", f"--insecure-loopback-port={unused_port()}"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        yield process.stderr
    finally:
        process.terminate()
        await process.communicate()


async def line_with(log, text):
    """Return the first line of a log with a text."""
    seen = []
    try:
        async with asyncio.timeout(60):
            async for line in log:
                seen.append(line.decode())
                if text in seen[-1]:
                    return seen[-1].strip()
    except TimeoutError:
        pass
    pytest.fail(f"no line with {text!r} in {''.join(seen)}")


async def test_a_certificate_for_another_name_is_not_trusted(tmp_path) -> None:
    tls = {"secret": "agent-tls", "serverName": "agents.example"}
    given = {**SPEC["agent"], "tls": tls}
    installed = Installed(tmp_path, agent=given, metricsApi={"source": "streams"})
    port = unused_port()
    async with installed.agent(port), following(installed, port) as log:
        line = await line_with(log, "not trusted")
    # The text in parentheses is OpenSSL's, from X509_V_ERR_HOSTNAME_MISMATCH.
    assert line.endswith(
        f"the stream of 127.0.0.1:{port} broke off: found a certificate that is not trusted (Hostname "
        "mismatch, certificate is not valid for 'agents.example'.), expected one by a CA of "
        "--agent-ca-file, for the name --agent-server-name, or else for the address's host"
    )


async def test_a_certificate_of_another_ca_is_not_trusted(tmp_path) -> None:
    installed = Installed(tmp_path, metricsApi={"source": "streams"})
    port = unused_port()
    async with installed.agent(port):
        installed.secrets["agent-tls"]["ca.crt"] = CERTIFICATES.Ca("others").pem
        async with following(installed, port) as log:
            line = await line_with(log, "not trusted")
    assert "expected one by a CA of --agent-ca-file" in line


async def test_a_wrong_password_is_reported_with_the_flags_to_look_at(tmp_path) -> None:
    installed = Installed(tmp_path, metricsApi={"source": "streams"})
    port = unused_port()
    async with installed.agent(port):
        installed.secrets["agent-scraper"]["password"] = "wrong"
        async with following(installed, port) as log:
            line = await line_with(log, "answered 401")
    assert line.endswith(
        f"the stream of 127.0.0.1:{port} broke off: answered 401, expected a user and password that it "
        "knows; see --agent-username with --agent-password-file, or --agent-token-file"
    )


def seen_agent(installed):
    """Return what the doctor sees of a cluster with one agent, which is ready."""
    template = installed.one("DaemonSet", "node-agent")["spec"]["template"]
    pod = {
        "metadata": {**template["metadata"], "name": "agent-1", "namespace": "gpuscale"},
        "spec": {**template["spec"], "nodeName": "gpu-1"},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }
    nodes = [{"metadata": {"name": "gpu-1"}}]
    return Snapshot(0, looks={"pods": Look([pod]), "nodes": Look(nodes)})


async def look_of(installed, port=None, password="sesame", name=NAME):
    """Return what the doctor reads of the agent with `--agent`; without a port, by the API server alone."""
    urls = {} if port is None else {"gpu-1": f"https://127.0.0.1:{port}"}
    (installed.folder / "ca.crt").write_text(installed.secrets["agent-tls"]["ca.crt"])
    (installed.folder / "password").write_text(password)
    given = (installed.folder / "ca.crt", name, ("scraper", installed.folder / "password"))
    access = _agent_access(urls, *given) if urls else None
    (found,) = (await AgentReader(None, urls, access).read(seen_agent(installed))).looks
    return found


async def test_doctor_says_how_to_ask_an_agent_that_wants_a_password(tmp_path) -> None:
    installed = Installed(tmp_path)
    look = await look_of(installed)
    assert (look.fault, look.is_locked) == (
        "it asks for a password, which the API server does not pass on",
        True,
    )
    snapshot = replace(seen_agent(installed), agents=(look,))
    (unseen,) = [each for each in unseen_parts(snapshot) if each.about == "pod/gpuscale/agent-1"]
    assert unseen.fix.command == (
        "kubectl port-forward -n gpuscale agent-1 9400  # and: "
        "gpuscale doctor --agent gpu-1=https://127.0.0.1:9400 --agent-ca-file CA.CRT "
        "--agent-server-name NAME --agent-username USER --agent-password-file FILE"
    )
    found = [each.check.id for each in agent_findings(snapshot) if "agent-1" in each.where]
    assert "agent-unreachable" not in found


async def test_doctor_asks_an_agent_with_tls_and_a_password(tmp_path, session) -> None:
    installed, port = Installed(tmp_path), unused_port()
    url = f"https://127.0.0.1:{port}/readyz"
    async with installed.agent(port):
        await until(lambda: status_of(session, url, installed), lambda status: status == 200)
        look = await look_of(installed, port)
        assert (look.fault, look.is_locked) == ("", False)
        assert len(look.families["DCGM_FI_DEV_GPU_UTIL"].samples) == 2
        look = await look_of(installed, port, password="wrong")
        told = f"https://127.0.0.1:{port} answered /metrics with 401"
        assert (look.fault, look.is_locked) == (told, True)
        look = await look_of(installed, port, name="agents.example")
        assert not look.is_locked
        assert look.fault == (
            f"https://127.0.0.1:{port}: found a certificate that is not trusted (Hostname mismatch, "
            "certificate is not valid for 'agents.example'.), expected one by a CA of --agent-ca-file, "
            "for the name --agent-server-name, or else for the address's host"
        )
        (finding,) = [
            each
            for each in agent_findings(replace(seen_agent(installed), agents=(look,)))
            if each.check.id == "agent-unreachable"
        ]
        assert finding.evidence == look.fault
        assert f"--agent gpu-1=https://127.0.0.1:{look.port}" in finding.fix.command
