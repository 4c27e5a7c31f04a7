"""The word that somebody may have meant."""

from gpuscale.base.words import MAX_WORD, closest


def test_the_most_similar_word_whatever_its_case() -> None:
    assert closest("GAUGES", ["counter", "gauge"]) == "gauge"


def test_nothing_where_nothing_is_similar() -> None:
    assert closest("temperature", ["counter", "gauge"]) is None


def test_the_cutoff_says_how_similar() -> None:
    assert closest("gau", ["gauge"], cutoff=0.7) == "gauge"  # 2 * 3 / (3 + 5) = 0.75
    assert closest("gau", ["gauge"], cutoff=0.8) is None


def test_long_words_are_not_compared() -> None:
    assert closest("a" * (MAX_WORD + 1), ["a" * MAX_WORD]) is None
