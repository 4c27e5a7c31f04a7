"""The word that somebody may have meant."""

from gpuscale.core.words import MAX_WORD, closest


def test_the_most_similar_word_whatever_its_case():
    assert closest("GAUGES", ["counter", "gauge"]) == "gauge"


def test_nothing_where_nothing_is_similar():
    assert closest("temperature", ["counter", "gauge"]) is None


def test_the_cutoff_says_how_similar():
    assert closest("gau", ["gauge"], cutoff=0.7) == "gauge"  # 2 * 3 / (3 + 5) = 0.75
    assert closest("gau", ["gauge"], cutoff=0.8) is None


def test_long_words_are_not_compared():
    assert closest("a" * (MAX_WORD + 1), ["a" * MAX_WORD]) is None
