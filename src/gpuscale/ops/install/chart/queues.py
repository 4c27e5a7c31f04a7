"""The queue lengths in alert rules, from the signals that measure a queue."""

from collections.abc import Iterator

from gpuscale.signals import SIGNALS, Signal, SignalFamily


def queue_texts() -> dict[str, str]:
    """Return the replacements for `QUEUES_OF_PODS` and `QUEUE_METRICS` in alert rules."""
    return {"ofPods": _queues_of_pods(), "metrics": "|".join(_queue_metrics())}


def _queues_of_pods() -> str:
    """Return a selector for the series of requests waiting in pods."""
    lengths = [each for each in SIGNALS.values() if _is_length_in_pods(each)]
    matchers = dict.fromkeys(each.matchers for each in lengths if each.matchers)
    # Series without this label belong to other servers.
    others = "".join("," + each.replace('="', '=~"|') for each in matchers)
    names = "|".join(name for each in lengths for name in each.spellings)
    return f'{{__name__=~"{names}"{others}}}'


def _queue_metrics() -> Iterator[str]:
    """Yield the API names of queue metrics that no pod reports."""
    seen = _families_with_lengths()
    waiting = {
        name: each for name, each in SIGNALS.items() if each.is_queue and each.family not in seen
    }
    yield from (each.metric for each in waiting.values() if each.kind != "external")
    yield f"(s[0-9]+-)?.+-({'|'.join(waiting)})"


def _families_with_lengths() -> set[SignalFamily]:
    return {each.family for each in SIGNALS.values() if _is_length_in_pods(each)}


def _is_length_in_pods(signal: Signal) -> bool:
    return signal.is_queue and signal.kind == "pods" and signal.how == "gauge"
