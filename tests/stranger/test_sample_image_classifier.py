"""The sample that classifies pictures, run as a stranger runs it: answers, load, bad pictures, its end."""

import io
import json
import struct
import zlib

import pytest
from PIL import Image

import samples

pytestmark = pytest.mark.timeout(600)  # of the installation, most of it


@pytest.fixture(scope="module")
def classifier(sample_venv):
    with samples.serving(sample_venv, "image_classifier.app", "--service-ms", "5") as running:
        yield running


def encoded(picture, kind="PNG"):
    out = io.BytesIO()
    picture.save(out, kind)
    return out.getvalue()


def test_its_own_picture_is_mostly_sky(classifier) -> None:
    answer = classifier.ask("/predict")
    assert answer.status == 200
    # 180 of 224 lines are blue
    result = json.loads(answer.body)
    assert result["label"] == "blue"
    assert result["score"] == pytest.approx(180 / 224, abs=1 / 32)
    assert answer.headers["X-Compute"] == "simulated"


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "BMP", "GIF"])
@pytest.mark.parametrize(
    ("colour", "label"),
    [((250, 20, 20), "red"), ((20, 200, 30), "green"), ((5, 5, 5), "black"), ((250,) * 3, "white")],
)
def test_a_picture_is_named_for_its_colour(classifier, colour, label, kind) -> None:
    body = encoded(Image.new("RGB", (60, 40), colour), kind)
    answer = classifier.ask("/predict", "POST", body)
    assert json.loads(answer.body) == {"label": label, "score": 1.0}


def huge_png(side):
    """Return the head of a picture that would take side x side pixels, with hardly any data."""
    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    parts = [(b"IHDR", head), (b"IDAT", zlib.compress(b"\0" * 1000)), (b"IEND", b"")]
    chunks = [
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in parts
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "expected a picture, one of BMP, GIF"),
        (b"not a picture", "expected a picture"),
        (encoded(Image.new("RGB", (60, 40)))[:60], "expected a picture"),
        (encoded(Image.new("RGB", (60, 40)), "TIFF"), "expected a picture"),
        (huge_png(6400), "found 6400 x 6400 pixels, expected 40000000"),
        (huge_png(100_000), "expected a picture"),
    ],
    ids=["empty", "text", "cut off", "TIFF", "large", "larger than Pillow takes"],
)
def test_what_is_no_picture_is_refused(classifier, body, words) -> None:
    answer = classifier.ask("/predict", "POST", body)
    assert answer.status == 400
    assert words in answer.body.decode()


def test_a_body_that_is_too_long_is_refused(classifier) -> None:
    assert classifier.ask("/predict", "POST", b"x" * (16 * 1024 * 1024 + 1)).status == 413
    assert classifier.metric("http_requests_total", code="413") == 1


def test_it_ends_when_it_is_asked_to(sample_venv) -> None:
    with samples.serving(sample_venv, "image_classifier.app") as running:
        assert running.lines[0] == "image-classifier: no GPU, the time it takes is simulated\n"
        code, said = running.stop()
    assert (code, said) == (0, "image-classifier: finishing what is there\n")


def test_a_gpu_that_is_asked_for_and_not_there_ends_it(sample_venv) -> None:
    done = samples.run(
        sample_venv, "image_classifier.app", "--device", "gpu", "--weights", "/nowhere"
    )
    assert done.returncode == 1
    assert "can't work on a GPU: No module named 'torch'" in done.stderr
