"""`gpuscale load http` against real servers on loopback, good and bad ones."""

import json
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpuscale.base.pki import make_ca, make_serving
from gpuscale.load.result import load_text

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
GPUSCALE = str(Path(sys.executable).with_name("gpuscale"))
Answer = Callable[[socket.socket, int], bool]


@contextmanager
def serving(answer: Answer, tls: ssl.SSLContext | None = None) -> Iterator[tuple[str, list[bytes]]]:
    """Serve requests by `answer`: gets the connection and the request's number, says if it goes on."""
    heads: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)

    def converse(client: socket.socket) -> None:
        with client:
            try:
                while data := client.recv(65_536):
                    heads.append(data)
                    if not answer(client, len(heads)):
                        return
            except OSError:
                return

    def accept() -> None:
        while True:
            try:
                client, _ = listener.accept()
                if tls is not None:
                    client = tls.wrap_socket(client, server_side=True)
            except ssl.SSLError:
                continue
            except OSError:
                return
            threading.Thread(target=converse, args=(client,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    scheme = "http" if tls is None else "https"
    try:
        yield f"{scheme}://127.0.0.1:{listener.getsockname()[1]}/", heads
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def load(*arguments: str, code: int = 0) -> tuple[dict[str, Any], str]:
    """Return the result's document, and what was said on standard error."""
    command = [GPUSCALE, "load", "http", *arguments, "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == code, done.stderr
    return (json.loads(done.stdout) if done.stdout else {}), done.stderr


def answers_ok(client: socket.socket, _: int) -> bool:
    client.sendall(OK)
    return True


def test_every_request_of_the_load_is_sent_and_answered() -> None:
    with serving(answers_ok) as (url, heads):
        result, _ = load(f"{url}predict?query=Music", "--rate=100", "--for=2s", "--arrivals=even")
    requests = result["requests"]
    assert (requests["sent"], requests["ok"], requests["errors"]) == (200, 200, 0)
    assert requests["statuses"] == {"200": 200}
    assert len(heads) == 200
    assert heads[0].startswith(b"GET /predict?query=Music HTTP/1.1\r\nHost: 127.0.0.1:")
    assert sum(row["sent"] for row in result["seconds"]) == 200
    assert [row["planned"] for row in result["seconds"][:2]] == [100, 100]


def test_requests_that_wait_for_a_stalled_server_count_from_when_they_were_due() -> None:
    # One connection, 50 requests a second for 2 s. The server stands still for 1 s at its 25th request: of
    # the next 50 requests the k-th waits 1 - k/50 s, so a quarter of all waits over half a second. A closed
    # loop, or one that counts from the writing, would find a single slow request in a hundred.
    def stalls(client: socket.socket, number: int) -> bool:
        if number == 25:
            time.sleep(1)
        return answers_ok(client, number)

    with serving(stalls) as (url, _):
        result, _ = load(
            url,
            "--rate=50",
            "--for=2s",
            "--arrivals=even",
            "--connections=1",
            "--promise=p80=400ms",
            code=1,
        )
    assert result["requests"]["ok"] == 100
    assert result["latencyMilliseconds"]["p90"] > 700
    assert result["serviceMilliseconds"]["p90"] < 400
    assert len(result["slo"]) == 1
    assert result["slo"][0].startswith("p80: found ")


def test_body_and_headers_arrive() -> None:
    with serving(answers_ok) as (url, heads):
        load(
            url,
            "--rate=5",
            "--for=1s",
            "-d",
            '{"text": "Musik"}',
            "-H",
            "Content-Type: application/json",
        )
    head, _, body = heads[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST / HTTP/1.1")
    assert b"\r\nContent-Type: application/json\r\n" in head
    assert b"\r\nContent-Length: 17" in head
    assert body == b'{"text": "Musik"}'


def closes_without_length(client: socket.socket, _: int) -> bool:
    client.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nthe end is the connection's")
    return False


def continues_first(client: socket.socket, _: int) -> bool:
    client.sendall(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + OK)
    return True


def sends_chunks(client: socket.socket, _: int) -> bool:
    client.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
    client.sendall(b"0\r\n\r\n")
    return True


@pytest.mark.parametrize("answer", [closes_without_length, continues_first, sends_chunks])
def test_answers_end_where_http_says(answer) -> None:
    with serving(answer) as (url, _):
        result, _ = load(url, "--rate=20", "--for=1s", "--arrivals=even")
    assert result["requests"]["statuses"] == {"200": 20}
    assert result["requests"]["errors"] == 0


def fails(client: socket.socket, _: int) -> bool:
    client.sendall(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
    return True


def is_no_http(client: socket.socket, _: int) -> bool:
    client.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
    return True


def hangs_up(client: socket.socket, _: int) -> bool:
    return False


def floods_with_headers(client: socket.socket, _: int) -> bool:
    client.sendall(b"HTTP/1.1 200 OK\r\n" + b"X: " + b"x" * 200_000 + b"\r\n\r\n")
    return True


@pytest.mark.parametrize(
    ("answer", "kind"),
    [(is_no_http, "malformed"), (hangs_up, "reset"), (floods_with_headers, "malformed")],
)
def test_each_fault_is_counted_and_told_once(answer, kind) -> None:
    with serving(answer) as (url, _):
        result, said = load(url, "--rate=40", "--for=1s", "--arrivals=even", code=1)
    assert result["requests"]["faults"] == {kind: 40}
    assert said.count(f"{kind}: ") == 1
    assert "Traceback" not in said


def test_failures_of_the_server_are_errors() -> None:
    with serving(fails) as (url, _):
        result, said = load(
            url, "--rate=40", "--for=1s", "--arrivals=even", "--promise=errors=5%", code=1
        )
    assert result["requests"]["statuses"] == {"503": 40}
    assert result["slo"] == ["errors: found 100 %, expected at most 5 %"]
    assert said.count("HTTP 503") == 1


def test_redirects_are_counted_and_not_followed() -> None:
    def sends_away(client: socket.socket, _: int) -> bool:
        client.sendall(b"HTTP/1.1 302 Found\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n")
        return True

    with serving(sends_away) as (url, heads):
        result, _ = load(url, "--rate=20", "--for=1s", "--arrivals=even")
    assert result["requests"]["statuses"] == {"302": 20}
    assert len(heads) == 20
    assert not any(b"/other" in head for head in heads)


def drips(client: socket.socket, _: int) -> bool:
    client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while True:
        client.sendall(b"x")
        time.sleep(0.05)


def never_ends(client: socket.socket, _: int) -> bool:
    client.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        client.sendall(b"10000\r\n" + b"x" * 65_536 + b"\r\n")
        time.sleep(0.01)


@pytest.mark.parametrize("answer", [drips, never_ends])
def test_an_answer_without_an_end_is_a_time_out(answer) -> None:
    with serving(answer) as (url, _):
        result, said = load(
            url, "--rate=4", "--for=1s", "--arrivals=even", "--timeout=500ms", code=1
        )
    assert result["requests"]["faults"] == {"timeout": 4}
    assert said.count("timeout: ") == 1


def test_a_server_that_is_not_there() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    result, said = load(
        f"http://127.0.0.1:{port}/", "--rate=50", "--for=1s", "--arrivals=even", code=1
    )
    requests = result["requests"]
    assert requests["faults"].get("refused", 0) + requests["notSent"] == 50
    assert said.count("refused: ") == 1


def test_users_of_a_closed_loop_wait_longer_and_longer_for_a_server_that_is_not_there() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = ("--closed-loop", "--users=5", "--for=2s")
    result, said = load(f"http://127.0.0.1:{port}/", *arguments, code=1)
    # Five users at 0, 0.1, 0.3, 0.7 and 1.5 s; the sixth time would be at 2.5 s.
    assert 10 <= result["requests"]["faults"]["refused"] <= 25
    assert said.count("refused: ") == 1
    assert "users wait up to 1 s before they try again" in said


def test_a_certificate_that_nobody_vouches_for(tmp_path: Path) -> None:
    now_ms = time.time_ns() // 1_000_000
    ca = make_ca(now_ms)
    pair = make_serving(ca, ("127.0.0.1",), now_ms)
    certificate, key, authority = (tmp_path / name for name in ("tls.crt", "tls.key", "ca.crt"))
    certificate.write_bytes(pair.certificate)
    key.write_bytes(pair.key)
    authority.write_bytes(ca.certificate)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    with serving(answers_ok, tls) as (url, _):
        result, _ = load(url, "--rate=10", "--for=1s", "--arrivals=even", code=1)
        assert result["requests"]["faults"].keys() <= {"tls"}
        assert load(url, "--rate=10", "--for=1s", "--insecure")[0]["requests"]["errors"] == 0
        trusting = load(url, "--rate=10", "--for=1s", "--cacert", str(authority))[0]
        assert trusting["requests"]["errors"] == 0


def test_a_server_that_never_answers_holds_no_more_than_the_bounds() -> None:
    def is_silent(client: socket.socket, _: int) -> bool:
        client.settimeout(30)
        return bool(client.recv(1)) or True

    with serving(is_silent) as (url, _):
        result, _ = load(
            url, "--rate=200", "--for=2s", "--timeout=500ms", "--connections=20", code=1
        )
    requests = result["requests"]
    assert requests["faults"].keys() <= {"timeout", "reset"}
    assert requests["ok"] == 0
    assert requests["errors"] == requests["sent"] + requests["notSent"]


@pytest.mark.parametrize("processes", [1, 2])
def test_an_interrupted_run_keeps_what_it_measured(tmp_path: Path, processes: int) -> None:
    file = tmp_path / "result.json"
    with serving(answers_ok) as (url, heads):
        command = [
            GPUSCALE,
            "load",
            "http",
            url,
            "--rate=50",
            "--for=1h",
            f"--processes={processes}",
        ]
        with subprocess.Popen(
            [*command, "--output-file", str(file)], stdout=subprocess.PIPE
        ) as process:
            while len(heads) < 20:
                time.sleep(0.02)
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0
    assert json.loads(file.read_text())["requests"]["ok"] >= 20


def test_processes_share_the_requests() -> None:
    with serving(answers_ok) as (url, heads):
        result, _ = load(url, "--rate=100", "--for=2s", "--arrivals=even", "--processes=2")
    assert (result["requests"]["ok"], len(heads)) == (200, 200)
    assert [row["sent"] for row in result["seconds"][:2]] == pytest.approx([100, 100], abs=30)


def test_a_plan_of_another_tool_is_sent_and_what_it_has_more_is_named(tmp_path: Path) -> None:
    with serving(answers_ok) as (url, heads):
        plan = tmp_path / "script.js"
        plan.write_text(
            "export const options = {thresholds: {}, scenarios: {a: {executor: 'constant-arrival-rate',\n"
            " rate: 50, duration: '2s'}}};\n"
            f"export default function () {{ http.get('{url}predict'); }}\n"
        )
        result, said = load(f"--plan={plan}", "--arrivals=even")
        assert result["requests"]["ok"] == 100
        assert heads[0].startswith(b"GET /predict HTTP/1.1")
        assert f"{plan}:1: thresholds is not taken over" in said
        result, _ = load(f"{url}other", f"--plan={plan}", "--arrivals=even", "--for=1s")
        assert result["requests"]["ok"] == 50
        assert heads[-1].startswith(b"GET /other HTTP/1.1")


def test_requests_of_a_plan_are_sent_in_turn(tmp_path: Path) -> None:
    plan = tmp_path / "load.yml"
    with serving(answers_ok) as (url, heads):
        requests = f"['{url}a', {{url: '{url}b', method: POST, body: hello}}]"
        plan.write_text(
            f"execution: {{throughput: 40, hold-for: 1s, scenario: {{requests: {requests}}}}}"
        )
        result, _ = load(f"--plan={plan}", "--arrivals=even", "--header=X-Team: vision")
        assert result["requests"]["ok"] == 40
        assert result["inTurnWith"] == [{"url": f"{url}b", "method": "POST"}]
        assert sum(head.startswith(b"GET /a ") for head in heads) == 20
        assert sum(head.startswith(b"POST /b ") for head in heads) == 20
        assert all(b"X-Team: vision" in head for head in heads)
        assert sum(head.endswith(b"\r\n\r\nhello") for head in heads) == 20
        _, said = load(f"{url}c", f"--plan={plan}", "--arrivals=even")
    assert "1 further request of the plan not sent beside the command line's" in said
    assert heads[-1].startswith(b"GET /c ")
    assert load_text(result).splitlines()[:2] == [f"GET {url}a", f"POST {url}b"]


def test_a_plan_of_users_needs_a_closed_loop(tmp_path: Path) -> None:
    plan = tmp_path / "load.yml"
    with serving(answers_ok) as (url, _):
        plan.write_text(
            f"execution: {{concurrency: 3, hold-for: 1s, scenario: {{requests: ['{url}']}}}}"
        )
        _, said = load(f"--plan={plan}", code=2)
        assert "found 3 users who wait for answers, expected requests per second" in said
        result, _ = load(f"--plan={plan}", "--closed-loop")
    assert (result["load"]["loop"], result["load"]["shape"]) == ("closed", "3 users")
    assert result["requests"]["ok"] > 3


def asked_tokens(heads: list[bytes]) -> list[tuple[int, int]]:
    """Return words of the prompt and tokens of the answer of each request."""
    bodies = [json.loads(head.partition(b"\r\n\r\n")[2]) for head in heads]
    return [(len(body["prompt"].split()), body["max_tokens"]) for body in bodies]


def test_a_trace_with_tokens_asks_an_openai_compatible_server_for_them(tmp_path: Path) -> None:
    lengths = [(30, 5), (200, 1), (1, 70)]
    entries = [
        {"timestamp": 300 * index, "input_length": prompt, "output_length": answer, "hash_ids": []}
        for index, (prompt, answer) in enumerate(lengths)
    ]
    trace = tmp_path / "trace.jsonl"
    trace.write_text("\n".join(map(json.dumps, entries)))
    options = [f"--trace={trace}", "--model=llama", "--for=1s", "--arrivals=even"]
    with serving(answers_ok) as (url, heads):
        result, _ = load(f"{url}v1/completions", *options)
        assert result["requests"]["ok"] == 3
        assert asked_tokens(heads) == lengths
        assert heads[0].startswith(b"POST /v1/completions HTTP/1.1")
        assert b"\r\nContent-Type: application/json\r\n" in heads[0]
        assert json.loads(heads[0].partition(b"\r\n\r\n")[2])["model"] == "llama"


def test_tokens_of_two_columns_and_a_body_of_ones_own(tmp_path: Path) -> None:
    trace = tmp_path / "azure.csv"
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n0,3,4\n0.2,5,6\n0.4,7,8\n")
    body = '{"prompt": "{prompt}", "max_tokens": {output_tokens}, "ignore_eos": true}'
    with serving(answers_ok) as (url, heads):
        load(
            f"{url}any", f"--trace={trace}", "--time-column=TIMESTAMP", "--for=1s", "-d", body,
            "--tokens=ContextTokens,GeneratedTokens", "--arrivals=even",
        )  # fmt: skip
        assert asked_tokens(heads) == [(3, 4), (5, 6), (7, 8)]
        heads.clear()
        load(f"{url}any", "--rate=4", "--for=1s", "--arrivals=even", "--tokens=9:2", "-d", body)
        assert asked_tokens(heads) == [(9, 2)] * 4


@pytest.mark.skipif(shutil.which("hey") is None, reason="needs the program hey")
def test_what_hey_measured_is_read(tmp_path: Path) -> None:
    with serving(answers_ok) as (url, _):
        done = subprocess.run(
            ["hey", "-n", "20", "-c", "2", "-o", "csv", url], capture_output=True, check=True
        )
    (tmp_path / "hey.csv").write_bytes(done.stdout)
    read = [GPUSCALE, "load", "read", str(tmp_path / "hey.csv"), "-o", "json"]
    out = subprocess.run(read, capture_output=True, text=True, check=True, timeout=60).stdout
    sent = json.loads(out)["tracks"][0]
    assert (sent["name"], sum(value for _, value in sent["points"])) == ("sent", 20)


def test_a_running_up_shows_what_its_hops_saw(tmp_path: Path) -> None:
    up = [GPUSCALE, "up", "ack-bert", "--speed=40", "--port=0", "--for=60s"]
    with subprocess.Popen(up, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        for line in process.stdout:
            if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                break
        page = found[0]
        result, _ = load(f"{page}/", "--rate=10", "--for=8s", f"--watch-up={page}")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    tracks = result["timeline"]["tracks"]
    hops = {track["hop"] for track in tracks}
    assert hops >= {"load", "latency", "gpu", "hpa", "replicas", "nodes"}
    ready = next(track for track in tracks if track["hop"] == "nodes")
    assert ready["points"][0][1] >= 1
    first_ms = min(at_ms for track in tracks for at_ms, _ in track["points"])
    assert first_ms > result["timeline"]["startedMs"] - 10_000


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ftp://host/", "--rate=1", "--for=1s"], "expected one such as http://"),
        (["http://127.0.0.1:9/", "--for=1s"], "found no load, expected one of --rate"),
        (
            ["http://127.0.0.1:9/v1/completions", "--rate=1", "--for=1s", "--model=m"],
            "found no tokens, expected --tokens such as 512:128",
        ),
        (
            ["http://127.0.0.1:9/", "--rate=1", "--for=1s", "--model=m", "--tokens=1:1"],
            "--model: found path '/', expected one that ends with /completions",
        ),
        (
            ["http://127.0.0.1:9/", "--rate=1", "--for=1s", "--model=m", "--tokens=many"],
            "--tokens: found 'many', expected PROMPT:ANSWER",
        ),
        (["--rate=1", "--for=1s"], "found no URL, expected one such as http://"),
        (["http://127.0.0.1:9/", "--rate=1"], "found no --for"),
        (["http://127.0.0.1:9/", "--rate=1", "--ramp=1..2", "--for=1s"], "found --rate and --ramp"),
        (["http://127.0.0.1:9/", "--rate=-1", "--for=1s"], "--rate: found -1, expected 0 to"),
        (["http://127.0.0.1:9/", "--rate=1", "--for=1s", "-H", "x"], "expected NAME: VALUE"),
        (
            ["http://127.0.0.1:9/", "--rate=1", "--for=1s", "-H", "A: b\r\nC: d"],
            "control character",
        ),
        (
            ["http://127.0.0.1:9/", "--rate=1", "--for=1s", "-H", "Content-Length: 5"],
            "sets it itself",
        ),
        (["http://127.0.0.1:9/", "--scenario=nothing"], "found no scenario 'nothing'"),
        (
            ["http://127.0.0.1:9/", "--scenario=ack-bert", "--service=other"],
            "found no service 'other' in ack-bert, expected one of: bert-intent-detection",
        ),
        (["http://127.0.0.1:9/", "--rate=1", "--for=1s", "--service=x"], "expected --scenario"),
        (["http://127.0.0.1:9/", "--trace=/no/such", "--for=1s"], "no such file"),
        (["http://127.0.0.1:9/", "--rate=1", "--for=1s", "-n", "prod"], "expected --watch-hpa"),
        (
            ["http://127.0.0.1:9/", "--rate=1", "--for=1s", "--watch-up=127.0.0.1:9480"],
            "--watch-up: found '127.0.0.1:9480', expected a URL",
        ),
        (
            ["http://127.0.0.1:9/", "--rate=1", "--for=1s", "--watch-up=http://127.0.0.1:9"],
            "http://127.0.0.1:9: ",
        ),
        (
            ["http://127.0.0.1:9/", "--rate=1", "--for=1s", "--html=/no/such/run.html"],
            "--html /no/such/run.html: found no folder /no/such",
        ),
        (
            ["http://127.0.0.1:9/", "--rate=1", "--for=1s", "--closed-loop"],
            "expected --users alone",
        ),
    ],
)
def test_wrong_input_is_refused_before_anything_is_sent(arguments, said) -> None:
    _, told = load(*arguments, code=2)
    assert said in told
    assert "Traceback" not in told


@pytest.mark.parametrize("rate", ["0", "0.0001"])
def test_a_load_without_a_request_says_why_it_exits_with_1(rate: str) -> None:
    document, said = load("http://127.0.0.1:1/", "--rate", rate, "--for", "1s", code=1)
    assert document["requests"]["sent"] == 0
    assert said == "gpuscale: no request came due: a higher rate or a longer time\n"
