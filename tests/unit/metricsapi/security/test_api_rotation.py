"""How a shared certificate is renewed: what may be shown and what is trusted, at every moment of a year."""

import random
from dataclasses import replace
from functools import cache

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from gpuscale.base.pki import KeyPair, make_ca, make_serving, names_of_service
from gpuscale.server.metricsapi.security.rotation import (
    OVERLAP_MS,
    SPREAD_MS,
    SharedCertificate,
    next_step,
    split_bundle,
)

NOW_MS = 1_760_000_000_000
DAY_MS = 86_400_000
NAMES = names_of_service("gpuscale-metrics-api", "gpuscale")
DAYS = 90


def step(stored, now_ms, *, is_published=True):
    return next_step(stored, NAMES, now_ms, DAYS, is_published=is_published)


def first(now_ms=NOW_MS):
    found = step(SharedCertificate(), now_ms, is_published=False)
    assert found is not None
    return found


def trusts(bundle: bytes, pair: KeyPair, now_ms: int) -> bool:
    """Whether a client with this bundle takes this certificate at this time."""
    return any(
        _signs(each, pair.certificate) and _holds(each, now_ms) for each in split_bundle(bundle)
    )


@cache
def _signs(ca, pem):
    certificate = x509.load_pem_x509_certificate(pem)
    try:
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(ca))
    except InvalidSignature:
        return False
    return True


def _holds(pem, now_ms):
    found = x509.load_pem_x509_certificate(pem)
    moments = found.not_valid_before_utc, found.not_valid_after_utc
    begin, end = (each.timestamp() * 1000 for each in moments)
    return begin <= now_ms < end


def test_an_empty_secret_gets_a_pair_for_the_service_that_lives_as_long_as_it_was_told() -> None:
    found = first()
    assert found.next is None
    assert found.since_ms == NOW_MS
    assert trusts(found.bundle, found.current, NOW_MS)
    assert not _holds(found.current.certificate, NOW_MS + DAYS * DAY_MS)
    assert _holds(found.current.certificate, NOW_MS + DAYS * DAY_MS - 2_000)


def test_what_is_trusted_before_there_is_a_secret_stays_trusted() -> None:
    ca = make_ca(NOW_MS - DAY_MS)
    old = make_serving(ca, NAMES, NOW_MS - DAY_MS)
    found = step(SharedCertificate(bundle=ca.certificate), NOW_MS)
    assert trusts(found.bundle, old, NOW_MS)
    assert trusts(found.bundle, found.current, NOW_MS)


def test_nothing_is_done_while_the_certificate_is_young() -> None:
    found = first()
    for days in (0.1, 1, 30, 59):
        assert step(found, NOW_MS + int(days * DAY_MS)) is None


def test_after_two_thirds_of_its_life_the_next_one_is_made_and_trusted_before_it_is_shown() -> None:
    found = first()
    due_ms = NOW_MS + 60 * DAY_MS  # 2/3 of 90 days
    begun = step(found, due_ms)
    assert begun.current == found.current
    assert trusts(begun.bundle, found.current, due_ms)
    assert trusts(begun.bundle, begun.next, due_ms)
    assert step(begun, due_ms + SPREAD_MS - 1) is None
    assert step(begun, due_ms + SPREAD_MS, is_published=False) is None
    promoted = step(begun, due_ms + SPREAD_MS)
    assert promoted.current == begun.next
    assert promoted.next is None
    assert promoted.bundle == begun.bundle
    assert step(promoted, promoted.since_ms + OVERLAP_MS - 1) is None
    finished = step(promoted, promoted.since_ms + OVERLAP_MS)
    assert finished.current == promoted.current
    assert len(split_bundle(finished.bundle)) == 1
    assert trusts(finished.bundle, finished.current, due_ms + DAY_MS)


def test_a_cluster_that_slept_for_months_serves_again_at_once() -> None:
    found = first()
    woken_ms = NOW_MS + 200 * DAY_MS
    renewed = step(found, woken_ms, is_published=False)
    assert trusts(renewed.bundle, renewed.current, woken_ms)
    assert len(split_bundle(renewed.bundle)) == 1
    begun = step(found, NOW_MS + 85 * DAY_MS)
    late_ms = NOW_MS + 100 * DAY_MS
    woken = step(begun, late_ms, is_published=False)
    assert woken.current == begun.next
    assert trusts(woken.bundle, woken.current, late_ms)


@pytest.mark.parametrize("broken", ["certificate", "key", "other key", "other name"])
def test_a_pair_that_can_t_serve_is_replaced(broken: str) -> None:
    found = first()
    other = first()
    current = {
        "certificate": replace(found.current, certificate=b"-----BEGIN"),
        "key": replace(found.current, key=b""),
        "other key": replace(found.current, key=other.current.key),
        "other name": make_serving(make_ca(NOW_MS), ("x.y.svc",), NOW_MS),
    }[broken]
    mended = step(replace(found, current=current), NOW_MS)
    assert mended.current not in (current, found.current)
    assert trusts(mended.bundle, mended.current, NOW_MS)
    begun = step(found, NOW_MS + 60 * DAY_MS)
    dropped = step(replace(begun, next=current), NOW_MS + 60 * DAY_MS)
    assert dropped.next is None
    assert dropped.current == found.current


@pytest.mark.parametrize("bundle", [b"", b"rubbish", make_ca(NOW_MS).certificate])
def test_a_bundle_without_the_ca_of_what_is_shown_is_made_again(bundle) -> None:
    found = replace(first(), bundle=bundle)
    mended = step(found, NOW_MS)
    assert trusts(mended.bundle, mended.current, NOW_MS)


def test_a_replica_whose_clock_is_a_little_behind_waits_and_a_step_of_the_far_future_does_not_block() -> (
    None
):
    begun = step(first(), NOW_MS + 60 * DAY_MS)
    assert step(begun, begun.since_ms - 60_000) is None
    assert step(replace(begun, since_ms=begun.since_ms + 400 * DAY_MS), begun.since_ms) is not None


@pytest.mark.parametrize("seed", range(3))
def test_no_client_ever_meets_a_certificate_that_it_does_not_trust(seed) -> None:
    """A year of three replicas that read every minute or so, are away for hours, and clients that lag."""
    rng = random.Random(seed)
    stored = first()
    shown = [stored.current] * 3
    read_ms = [NOW_MS] * 3
    trusted = client = stored.bundle
    client_ms = now_ms = NOW_MS
    serving, renewals = {stored.current.certificate}, 0
    while now_ms < NOW_MS + 365 * DAY_MS:
        in_renewal = stored.next is not None or now_ms - stored.since_ms < 2 * 3_600_000
        now_ms += rng.randrange(1_000, 60_000) if in_renewal else rng.randrange(DAY_MS)
        # The API server follows an APIService within seconds; two minutes are far more than it takes.
        if not in_renewal or now_ms - client_ms > rng.randrange(120_000):
            client, client_ms = trusted, now_ms
        for index in range(3):
            # A replica reads every ten seconds while the API server answers.
            if not in_renewal or now_ms - read_ms[index] > rng.randrange(10_000, 200_000):
                shown[index], read_ms[index] = stored.current, now_ms
        changed = step(stored, now_ms, is_published=trusted == stored.bundle)
        trusted = stored.bundle
        if changed is not None:
            stored, trusted = changed, changed.bundle
        if stored.current.certificate not in serving:
            serving.add(stored.current.certificate)
            renewals += 1
        assert all(trusts(client, each, now_ms) for each in shown)
    # 60 days each, of 365: six renewals begin.
    assert renewals == 6
