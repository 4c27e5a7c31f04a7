"""The queues that alerts look at, from the signals that are one."""

from collections.abc import Iterator

from gpuscale.signals import SIGNALS, Signal, SignalFamily


def queue_texts() -> dict[str, str]:
    """Return what alert rules say in place of `QUEUES_OF_PODS` and `QUEUE_METRICS`."""
    return {"ofPods": _queues_of_pods(), "metrics": "|".join(_queue_metrics())}


def _queues_of_pods() -> str:
    """Return a selector of the series of requests that wait in pods."""
    lengths = [each for each in SIGNALS.values() if _is_length_in_pods(each)]
    matchers = dict.fromkeys(each.matchers for each in lengths if each.matchers)
    # Series without the label are of the other servers.
    others = "".join("," + each.replace('="', '=~"|') for each in matchers)
    names = "|".join(name for each in lengths for name in each.spellings)
    return f'{{__name__=~"{names}"{others}}}'


def _queue_metrics() -> Iterator[str]:
    """Yield what HPAs call the queues of families that have no length in pods."""
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
