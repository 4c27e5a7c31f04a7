"""The sample services on a real GPU: they answer, the GPU works for them, and their metrics say so.

Weights are random: what is tested is where the work is done, not what a trained model would say.
`gpuscale calibrate` then measures one of them; three minutes of load. Besides the packages of
`test_load_gpu.py` it takes torch, transformers, torchvision, aiohttp, prometheus-client and the extra `load`.
"""

import concurrent.futures
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

import samples

VENV = Path(sys.prefix)
UTIL = "DCGM_FI_DEV_GPU_UTIL"
INTENTS = ("GetWeather", "PlayMusic", "RateBook")
WORDS = ("[PAD]", "[UNK]", "warm", "up", "play", "some", "music", "will", "it", "rain")
LOADED_S = 4
CLIENTS = 4

pytestmark = pytest.mark.usefixtures("torch_there")


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """A classifier of BERT's base size, as `save_pretrained` writes it."""
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers")
    models, splitting = tokenizers.models, tokenizers.pre_tokenizers

    folder = tmp_path_factory.mktemp("bert")
    known = tokenizers.Tokenizer(
        models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    known.pre_tokenizer = splitting.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=known, unk_token="[UNK]", pad_token="[PAD]", model_max_length=512
    )
    tokenizer.save_pretrained(folder)
    names = dict(enumerate(INTENTS))
    config = transformers.BertConfig(
        num_labels=len(names), id2label=names, label2id={name: n for n, name in names.items()}
    )
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def resnet(tmp_path_factory):
    """A file with the state of torchvision's resnet50."""
    torchvision = pytest.importorskip("torchvision", reason="needs torchvision")
    import torch

    file = tmp_path_factory.mktemp("resnet") / "resnet50.pt"
    torch.save(torchvision.models.resnet50().state_dict(), file)
    return file


def keep_asking(sample, path, end_s):
    """Return the answers of one client that asks again and again."""
    answers = []
    while time.monotonic() < end_s:
        answers.append(sample.ask(path))
    return answers


def check_on_gpu(sample, path, reads, gpu):
    """Hold a sample's answers, its use of the GPU and its metrics against each other; return figures."""
    assert f"on {gpu.model}" in sample.lines[-2]
    assert sample.metric("compute_info", compute="gpu", device=gpu.model) == 1
    end_s = time.monotonic() + LOADED_S
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        clients = [pool.submit(keep_asking, sample, path, end_s) for _ in range(CLIENTS)]
        time.sleep(1)
        readings = reads.run(LOADED_S - 2)
        at_work = sample.metric("http_requests_in_flight")
        answers = [answer for client in clients for answer in client.result()]
    assert {answer.status for answer in answers} == {200}
    assert {answer.headers["X-Compute"] for answer in answers} == {"gpu"}
    assert len({answer.body for answer in answers}) == 1
    assert sample.metric("http_requests_total", code="200") == len(answers)
    assert sample.metric("http_request_duration_seconds_count") == len(answers)
    assert 1 <= at_work <= CLIENTS
    assert sample.metric("http_requests_in_flight") == 0
    busy = statistics.fmean(each.values[UTIL] for each in readings)
    assert busy > 5
    holders = {process.pid: process for each in readings for process in each.processes}
    assert sample.process.pid in holders
    code, rest = sample.stop()
    assert code == 0, rest
    return {
        "answers_per_s": len(answers) / LOADED_S,
        "in_flight": at_work,
        "gpu_util_percent": busy,
        "memory_mib": holders[sample.process.pid].memory_used_mib,
    }


def test_bert_finds_intents_on_the_gpu(bert, pace, identity, results) -> None:
    reads = pace()
    with samples.serving(VENV, "bert_intent.app", "--model", str(bert), "--lanes=2") as sample:
        path = "/predict?query=play+some+music"
        found = check_on_gpu(sample, path, reads, identity)
    results.setdefault("samples", {})["bert_intent"] = found


def test_resnet_classifies_pictures_on_the_gpu(resnet, pace, identity, results) -> None:
    reads = pace()
    with samples.serving(VENV, "image_classifier.app", "--weights", str(resnet)) as sample:
        found = check_on_gpu(sample, "/predict", reads, identity)
    results.setdefault("samples", {})["image_classifier"] = found


def test_the_job_learns_digits_on_the_gpu(identity, results) -> None:
    started = time.monotonic()
    done = samples.run(VENV, "mnist_job.train", "--max_steps=300", "--device=gpu")
    taken_s = time.monotonic() - started
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"mnist-job: on {identity.model}"
    accuracy = float(lines[-2].rpartition(" ")[2])
    assert accuracy > 0.95
    results.setdefault("samples", {})["mnist_job"] = {"accuracy": accuracy, "seconds": taken_s}


@pytest.mark.parametrize("lanes", [1, 2])
def test_calibrate_predicts_what_a_model_server_does(bert, lanes, tmp_path, results) -> None:
    pytest.importorskip("hdrh", reason="needs the extra load")
    options = ("--model", str(bert), f"--lanes={lanes}")
    with samples.serving(VENV, "bert_intent.app", *options) as sample:
        path = "/predict?query=play+some+music"
        alone = statistics.median(timed_ms(sample, path) for _ in range(50))
        url = f"http://127.0.0.1:{sample.port}"
        started = time.monotonic()
        done = subprocess.run(
            [
                *(sys.executable, "-m", "gpuscale.cli.main", "calibrate", url + path),
                *(f"--promise=p95={5 * alone:.0f}ms", "--hold=8s", "--for=15m", "-o", "json"),
                *(f"--metrics={url}/metrics", "--signal=http_requests_in_flight"),
                *("--hpa=hpa.yaml", "--scenario=scenario.yaml"),
            ],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
        )
        taken_s = time.monotonic() - started
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    results.setdefault("calibrate", {})[f"bert, lanes: {lanes}"] = {
        "alone_ms": alone,
        "seconds": taken_s,
        "exit_code": done.returncode,
        **{
            key: found.get(key)
            for key in (
                *("objective", "withoutLoad", "end", "model", "knee", "limit"),
                *("check", "unchecked", "notes"),
            )
        },
        "signals": found.get("signals"),
        "levels": found["levels"],
    }
    assert taken_s <= 900
    kept = [each["rate"] for each in found["levels"] if each["isUsed"] and each["keepsObjective"]]
    if lanes == 1 or done.returncode == 0:
        assert abs(found["check"]["difference"]) <= 0.2
        assert found["limit"]["method"] == "queue"
        assert found["limit"]["rate"] >= 0.8 * max(kept)
        assert (tmp_path / "hpa.yaml").is_file(), done.stderr
        return
    # Threads of one interpreter may be no queue that is known; then it says so and writes nothing.
    assert done.returncode == 1
    assert found.get("unchecked") or abs(found["check"]["difference"]) > 0.2
    if "unchecked" in found:
        assert "calibrate again" in " ".join(found["notes"]) or not found["end"]["isWhole"]
        assert not {"knee", "curve", "scaleOut"} & set(found)
        assert not (tmp_path / "hpa.yaml").exists()


def timed_ms(sample, path):
    """Return how long one request takes."""
    started = time.monotonic()
    sample.ask(path)
    return 1000 * (time.monotonic() - started)
