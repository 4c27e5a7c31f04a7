"""The sample that makes text, run as a stranger runs it, and asked as OpenAI's clients ask."""

import json
import socket
import threading

import pytest

import samples
from gpuscale.base.clock import ManualClock
from gpuscale.base.objects.selectors import parse_selector
from gpuscale.manifests import HorizontalPodAutoscaler, load_manifests
from gpuscale.series.scraping.scrape import ScrapeTarget
from gpuscale.series.storage.store import SeriesStore
from gpuscale.server.metricsapi.provider import MetricsProvider
from gpuscale.server.metricsapi.wire.paths import CustomTarget
from gpuscale.server.rules.config import preset_config
from gpuscale.server.sources.embedded import EmbeddedSource
from gpuscale.signals.servers import SERVER_SIGNALS, VLLM

pytestmark = pytest.mark.timeout(600)  # of the installation, most of it
NOW_MS = 1_700_000_000_000
LABELS = {"engine": "0", "model_name": "simulated"}


@pytest.fixture(scope="module")
def text(sample_venv):
    with samples.serving(sample_venv, "text.app", "--step-ms", "2") as running:
        yield running


def post(sample, path, body):
    answer = sample.ask(path, "POST", json.dumps(body).encode())
    return answer.status, json.loads(answer.body)


def test_a_completion_has_the_words_and_their_number(text) -> None:
    status, answer = post(text, "/v1/completions", {"prompt": "say it again", "max_tokens": 5})
    assert status == 200
    assert answer["object"] == "text_completion"
    assert answer["choices"] == [
        {"index": 0, "finish_reason": "length", "text": "This text was made without "}
    ]
    assert answer["usage"] == {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}


def test_a_chat_is_answered_by_the_assistant(text) -> None:
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]
    status, answer = post(text, "/v1/chat/completions", {"messages": messages, "max_tokens": 2})
    assert status == 200
    assert answer["object"] == "chat.completion"
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "This text "}


def test_the_model_is_listed_and_no_gpu_is_claimed(text) -> None:
    answer = text.ask("/v1/models")
    assert [each["id"] for each in json.loads(answer.body)["data"]] == ["simulated"]
    assert answer.headers["X-Compute"] == "simulated"
    assert text.lines[0] == "text: no GPU, the time it takes is simulated\n"
    assert text.ask("/health").status == 200


@pytest.mark.parametrize(
    ("path", "body", "read"),
    [
        ("/v1/completions", {"prompt": "a"}, lambda choice: choice["text"]),
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": "a"}]},
            lambda choice: choice["delta"]["content"],
        ),
    ],
)
def test_a_stream_brings_one_token_after_the_other(text, path, body, read) -> None:
    answer = text.ask(path, "POST", json.dumps({**body, "stream": True, "max_tokens": 4}).encode())
    assert answer.headers["Content-Type"] == "text/event-stream"
    events = answer.body.decode().split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    chunks = [json.loads(each.removeprefix("data: ")) for each in events[:-2]]
    assert [read(chunk["choices"][0]) for chunk in chunks] == ["This ", "text ", "was ", "made "]
    finishes = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert finishes == [None, None, None, "length"]


def test_each_signal_that_gpuscale_knows_of_vllm_is_there(text) -> None:
    post(text, "/v1/completions", {"prompt": "a", "max_tokens": 2})
    names = {name for name, _ in text.metrics()}
    wanted = {signal.series for signal in SERVER_SIGNALS.values() if signal.family is VLLM}
    assert len(wanted) >= 5
    for series in wanted:
        assert {series, f"{series}_bucket"} & names, series


def test_tokens_and_times_are_counted(text) -> None:
    before = text.metrics()
    post(text, "/v1/completions", {"prompt": "one two three", "max_tokens": 7})
    after = text.metrics()

    def grown(name, **more):
        labels = tuple(sorted({**LABELS, **more}.items()))
        found = [key for key in after if key[0] == name and tuple(sorted(key[1])) == labels]
        assert len(found) == 1, (name, found)
        return after[found[0]] - before.get(found[0], 0)

    assert grown("vllm:prompt_tokens_total") == 3
    assert grown("vllm:generation_tokens_total") == 7
    assert grown("vllm:time_to_first_token_seconds_count") == 1
    assert grown("vllm:inter_token_latency_seconds_count") == 6
    assert grown("vllm:request_success_total", finished_reason="length") == 1
    # Seven steps of 2 ms + 0.2 ms for the sequence, and 3 x 0.1 ms for the prompt
    assert grown("vllm:e2e_request_latency_seconds_sum") >= 7 * 0.0022 + 0.0003


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/v1/completions", b"{", "expected a JSON object"),
        ("/v1/completions", b"[" * 100_000, "expected a JSON object"),
        ("/v1/completions", b"\xff", "utf-8"),
        ("/v1/completions", b'{"prompt": 3}', "prompt: expected a text"),
        ("/v1/completions", b'{"prompt": "a", "max_tokens": 0}', "max_tokens: expected a whole"),
        ("/v1/completions", b'{"prompt": "a", "max_tokens": true}', "max_tokens: expected a whole"),
        ("/v1/completions", b'{"prompt": "a", "model": "gpt-5"}', "model: expected simulated"),
        ("/v1/chat/completions", b'{"messages": []}', "messages: expected a list"),
        ("/v1/chat/completions", b'{"messages": [{"role": "user"}]}', "messages: expected objects"),
    ],
)
def test_bad_requests_are_refused_in_openais_form(text, path, body, words) -> None:
    answer = text.ask(path, "POST", body)
    error = json.loads(answer.body)["error"]
    assert (answer.status, error["type"]) == (400, "invalid_request_error")
    assert words in error["message"]


def test_a_body_that_is_too_long_is_refused(text) -> None:
    body = json.dumps({"prompt": "a" * 2_000_000}).encode()
    assert text.ask("/v1/completions", "POST", body).status == 413


def value(sample, name):
    (found,) = [each for (key, _), each in sample.metrics().items() if key == name]
    return found


def test_a_full_batch_is_seen_waiting_and_full_queues_refuse(sample_venv) -> None:
    options = ("--step-ms", "50", "--max-num-seqs", "2", "--queue", "3", "--kv-tokens", "100")
    with samples.serving(sample_venv, "text.app", *options) as text:
        statuses: list[int] = []

        def ask() -> None:
            body = {"prompt": "a", "max_tokens": 19}
            statuses.append(post(text, "/v1/completions", body)[0])

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        while value(text, "vllm:num_requests_running") < 2:
            assert any(thread.is_alive() for thread in threads)
        assert 1 <= value(text, "vllm:num_requests_waiting") <= 3
        assert value(text, "vllm:kv_cache_usage_perc") == pytest.approx(2 * 20 / 100)
        for thread in threads:
            thread.join()
        # Three may wait; one or two may be in the batch by the time that the last one comes.
        assert 3 <= statuses.count(200) <= 5
        assert statuses.count(503) == 8 - statuses.count(200)
        assert value(text, "vllm:kv_cache_usage_perc") == 0
        assert (
            text.ask("/v1/completions", "POST", b'{"prompt": "a", "max_tokens": 100}').status == 400
        )


class OnePod:
    """The cluster's objects, as far as the metrics API asks for them."""

    def names(self, resource, namespace, selector):
        return ("text-5c6f7d8b9c-x2f4z",)


async def served(page, metric):
    """Return what the metrics API's preset makes of a page that was scraped from the pod, in thousandths."""
    (pod,) = OnePod().names("pods", "ml", None)
    store = SeriesStore()
    target = {"namespace": "ml", "pod": pod, "job": "text", "instance": f"{pod}:8000"}
    ScrapeTarget(store, target, honor_labels=False).ingest(page, NOW_MS)
    source = EmbeddedSource(store)
    provider = MetricsProvider(preset_config(), source, OnePod(), ManualClock(NOW_MS))
    await provider.relist()
    asked = CustomTarget("pods", "ml", pod, metric)
    answer = await provider.custom(asked, parse_selector(""), parse_selector(""))
    return [each.value_milli for each in answer.values]


async def test_its_hpa_reads_the_queue_and_the_cache(sample_venv) -> None:
    """From requests over the sample's page and the preset to what the HPA of `manifests.yaml` asks for."""
    options = ("--step-ms", "100", "--max-num-seqs", "1", "--kv-tokens", "100")
    with samples.serving(sample_venv, "text.app", *options) as text:
        body = {"prompt": "a", "max_tokens": 24}
        threads = [
            threading.Thread(target=post, args=(text, "/v1/completions", body)) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        while value(text, "vllm:num_requests_waiting") < 3:
            assert all(thread.is_alive() for thread in threads)
        page = text.ask("/metrics").body.decode()
        for thread in threads:
            thread.join()
    manifests = load_manifests((samples.SERVICES / "text" / "manifests.yaml").read_text(), "text")
    (hpa,) = [each for each in manifests if isinstance(each, HorizontalPodAutoscaler)]
    read = {each.name: await served(page, each.name) for each in hpa.metrics}
    # One of four is in the batch and holds 25 of 100 tokens.
    assert read == {"vllm_num_requests_waiting": [3000], "vllm_kv_cache_usage_perc": [250]}


def test_a_client_that_leaves_makes_room(sample_venv) -> None:
    with samples.serving(sample_venv, "text.app", "--step-ms", "20") as text:
        body = json.dumps({"prompt": "a", "max_tokens": 4000, "stream": True}).encode()
        with socket.create_connection(("127.0.0.1", text.port), timeout=30) as client:
            head = (
                f"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            client.sendall(head.encode() + body)
            client.recv(1000)
            assert value(text, "vllm:num_requests_running") == 1
        while value(text, "vllm:num_requests_running"):
            pass  # 4 000 tokens would take 80 s, longer than a request for metrics may


def test_sigterm_lets_finish_what_is_there(sample_venv) -> None:
    with samples.serving(sample_venv, "text.app", "--step-ms", "50") as text:
        answers: list[tuple[int, object]] = []
        body = {"prompt": "a", "max_tokens": 20}
        thread = threading.Thread(
            target=lambda: answers.append(post(text, "/v1/completions", body))
        )
        thread.start()
        while not value(text, "vllm:num_requests_running"):
            pass
        code, _ = text.stop()
        thread.join()
    assert code == 0
    assert [status for status, _ in answers] == [200]


def test_a_model_needs_vllm(sample_venv) -> None:
    done = samples.run(sample_venv, "text.app", "--model", "some/model")
    assert done.returncode == 1
    assert "text: --model needs vLLM" in done.stderr
