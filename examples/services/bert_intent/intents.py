"""What finds the intent of a sentence: a BERT model on a GPU, or a table of words where there is none."""

import re
from collections.abc import Callable

WORDS = {
    "AddToPlaylist": {"add", "append", "playlist"},
    "BookRestaurant": {"book", "dinner", "restaurant", "table"},
    "GetWeather": {"cold", "forecast", "rain", "snow", "sunny", "weather"},
    "PlayMusic": {"album", "listen", "music", "play", "song", "tune"},
    "RateBook": {"novel", "rate", "rating", "stars"},
    "SearchCreativeWork": {"find", "game", "painting", "show", "trailer"},
    "SearchScreeningEvent": {"cinema", "film", "movie", "schedule", "theatre"},
}
"""The intents of the SNIPS data set, each with some words that speak for it."""
UNKNOWN = "Unknown"


def by_words(query: str) -> str:
    """Return the intent that most words speak for, the first by name among equals."""
    words = set(re.findall(r"\w+", query.lower()))
    hits = {intent: len(words & known) for intent, known in WORDS.items()}
    best = max(hits, key=lambda intent: hits[intent])
    return best if hits[best] else UNKNOWN


def bert(model: str) -> tuple[str, Callable[[str], str]]:
    """Load a sequence classifier onto the GPU.

    Args:
        model: a folder with weights and tokenizer, or a model's name at Hugging Face; the intents are its
            labels.

    Returns:
        The GPU's name, and what finds the intent of a sentence.

    Raises:
        ImportError: torch or transformers is not installed.
        RuntimeError: there is no GPU.
        OSError: there is no such model.
    """
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    if not torch.cuda.is_available():
        raise RuntimeError("torch finds no GPU")
    tokenizer = AutoTokenizer.from_pretrained(model)
    classifier = AutoModelForSequenceClassification.from_pretrained(model).to("cuda").eval()

    def intent(query: str) -> str:
        tokens = tokenizer(query, truncation=True, return_tensors="pt").to("cuda")
        with torch.inference_mode():
            scores = classifier(**tokens).logits
        return str(classifier.config.id2label[int(scores.argmax())])

    intent("warm up")
    return torch.cuda.get_device_name(), intent
