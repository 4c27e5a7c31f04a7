"""The sample that finds intents, run as a stranger runs it: answers, load, bad input, its end."""

import threading
import time

import pytest

import samples

pytestmark = pytest.mark.timeout(600)  # of the installation, most of it


@pytest.fixture(scope="module")
def bert(sample_venv):
    with samples.serving(sample_venv, "bert_intent.app", "--service-ms", "10") as running:
        yield running


@pytest.mark.parametrize(
    ("query", "intent"),
    [
        ("Music", "PlayMusic"),
        ("will%20it%20rain%20tomorrow%3F", "GetWeather"),
        ("book+a+table+for+two", "BookRestaurant"),
        ("qwertz", "Unknown"),
    ],
)
def test_it_finds_intents(bert, query, intent) -> None:
    answer = bert.ask(f"/predict?query={query}")
    assert (answer.status, answer.body.decode()) == (200, intent)


def test_it_says_that_no_gpu_works(bert) -> None:
    assert bert.lines[0] == "bert-intent: no GPU, the time it takes is simulated\n"
    assert bert.ask("/predict?query=Music").headers["X-Compute"] == "simulated"
    assert bert.metric("compute_info", compute="simulated", device="none") == 1


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/predict", 400, "found no query, expected ?query="),
        ("/predict?query=+", 400, "found no query"),
        ("/predict?query=" + "a" * 2001, 400, "found 2001 characters"),
        ("/predict?query=" + "a" * 20_000, 400, ""),
        ("/nothing", 404, ""),
    ],
)
def test_bad_requests_are_refused(bert, path, status, words) -> None:
    before = bert.metrics().get(("http_requests_total", (("code", str(status)),)), 0)
    answer = bert.ask(path)
    assert answer.status == status
    assert words in answer.body.decode()
    counted = bert.metrics().get(("http_requests_total", (("code", str(status)),)), 0)
    assert counted - before == (1 if len(path) < 10_000 else 0)  # the longest is no HTTP at all


def test_a_malformed_request_is_no_page_of_the_log(sample_venv) -> None:
    with samples.serving(sample_venv, "bert_intent.app") as bert:
        assert bert.ask("/predict?query=" + "a" * 20_000).status == 400
        _, printed = bert.stop()
    assert printed == "bert-intent: finishing what is there\n"


def crowd(sample, count):
    """Send requests at once; return the threads that do it, and a list that gets (seconds, answer)."""
    answers: list[tuple[float, samples.Answer]] = []
    started = time.monotonic()

    def ask() -> None:
        answer = sample.ask("/predict?query=Music")
        answers.append((time.monotonic() - started, answer))

    threads = [threading.Thread(target=ask) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads, answers


def test_a_crowd_waits_for_its_turn_and_is_seen_waiting(sample_venv) -> None:
    options = ("--service-ms", "400", "--lanes", "2", "--queue", "100")
    with samples.serving(sample_venv, "bert_intent.app", *options) as bert:
        threads, answers = crowd(bert, 10)
        most = 0.0
        while any(thread.is_alive() for thread in threads):
            page = bert.metrics()
            most = max(most, page["http_requests_waiting", ()])
            assert page["http_requests_in_flight", ()] <= 10
        for thread in threads:
            thread.join()
        assert {answer.status for _, answer in answers} == {200}
        # Two at once, 0.4 s each: the k-th pair can't be ready before k x 0.4 s.
        for index, (took, _) in enumerate(sorted(answers, key=lambda each: each[0])):
            assert took >= 0.4 * (index // 2 + 1) - 0.01
        assert most >= 3  # of the eight that wait at first, seen between two looks
        page = bert.metrics()
        assert page["http_requests_waiting", ()] == page["http_requests_in_flight", ()] == 0
        assert page["http_request_duration_seconds_count", ()] == 10
        # 0.4 + 0.4 + 0.8 + ... + 2.0 + 2.0 seconds where all come at once
        assert page["http_request_duration_seconds_sum", ()] >= 10 * 0.4


def test_more_than_may_wait_are_turned_away(sample_venv) -> None:
    options = ("--service-ms", "2000", "--queue", "3")
    with samples.serving(sample_venv, "bert_intent.app", *options) as bert:
        threads, answers = crowd(bert, 8)
        for thread in threads:
            thread.join()
    statuses = sorted(answer.status for _, answer in answers)
    assert statuses == [200] * 4 + [503] * 4  # one at work and three that wait
    refused = next(answer for _, answer in answers if answer.status == 503)
    assert refused.headers["Retry-After"] == "1"


def test_sigterm_lets_finish_what_is_there(sample_venv) -> None:
    with samples.serving(sample_venv, "bert_intent.app", "--service-ms", "1500") as bert:
        threads, answers = crowd(bert, 1)
        while not bert.metric("http_requests_in_flight"):
            pass
        code, said = bert.stop()
        threads[0].join()
    assert code == 0
    assert said == "bert-intent: finishing what is there\n"
    assert [answer.body for _, answer in answers] == [b"PlayMusic"]


def test_times_that_were_measured_are_drawn_from(sample_venv, tmp_path) -> None:
    measured = tmp_path / "ms.txt"
    measured.write_text("300\n300\n")
    with samples.serving(sample_venv, "bert_intent.app", "--service-times", measured) as bert:
        bert.ask("/predict?query=Music")
        assert bert.metric("http_request_duration_seconds_sum") >= 0.3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--device", "gpu"), "--device gpu needs a model"),
        (("--service-times", "/nowhere"), "expected constant, exponential or a file"),
        (("--lanes", "0"), "argument --lanes"),
        (("--service-ms", "nan"), "argument --service-ms"),
    ],
)
def test_wrong_options_are_refused(sample_venv, arguments, words) -> None:
    done = samples.run(sample_venv, "bert_intent.app", *arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_gpu_that_is_asked_for_and_not_there_ends_it(sample_venv) -> None:
    done = samples.run(sample_venv, "bert_intent.app", "--device", "gpu", "--model", "/nowhere")
    assert done.returncode == 1
    assert "can't work on a GPU: No module named 'torch'" in done.stderr
