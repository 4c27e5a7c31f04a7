# mypy: disable-error-code="arg-type"
"""Who asks: the order of the ways to show it, and what is not believed."""

import gc
import weakref

import pytest
from multidict import CIMultiDict, CIMultiDictProxy
from OpenSSL import crypto

from gpuscale.base.errors import UnavailableError
from gpuscale.server.metricsapi.security.authentication import (
    Authenticator,
    RequestCredentials,
    UnauthenticatedError,
)
from gpuscale.server.metricsapi.security.chains import CaBundle, Subject, UntrustedError
from gpuscale.server.metricsapi.security.reviews import NOBODY, RequestHeaders, Trust, User
from gpuscale_testing.addresses import wait_until

ALL = "system:authenticated"


class Tokens:
    async def review(self, token):
        if token == "down":
            raise UnavailableError("connection refused")
        return User("robot", ("robots",)) if token == "good" else None


def shown(*pairs):
    return tuple(crypto.load_certificate(crypto.FILETYPE_PEM, pair[0].encode()) for pair in pairs)


def headers(*pairs):
    return CIMultiDictProxy(CIMultiDict(pairs))


SPOOFED = (("X-Remote-User", "root"), ("X-Remote-Group", "system:masters"))


@pytest.fixture
def authenticator(cas):
    trusted = RequestHeaders(
        cas["proxies"].pem,
        ("front-proxy-client",),
        ("X-Remote-User", "X-Second-User"),
        uid_headers=("X-Remote-Uid",),
    )
    return Authenticator(lambda: Trust(cas["clients"].pem, trusted), Tokens())


async def user(authenticator, *header_pairs, certificates=()):
    return await authenticator.user(RequestCredentials(headers(*header_pairs), certificates))


async def test_a_front_proxys_word_is_taken(authenticator, cas) -> None:
    proxy = shown(cas["proxies"].client("front-proxy-client"))
    found = await user(
        authenticator,
        ("x-remote-user", "ann"),
        ("X-Remote-Group", "a"),
        ("X-REMOTE-GROUP", "b"),
        ("X-Remote-Uid", "7"),
        ("X-Remote-Extra-Acme.Com%2FScope", "one"),
        ("x-remote-extra-acme.com%2fscope", "two"),
        ("X-Remote-Extra-Other", "three"),
        certificates=proxy,
    )
    extra = (("acme.com/scope", ("one", "two")), ("other", ("three",)))
    assert found == User("ann", ("a", "b", ALL), "7", extra)


async def test_the_first_header_that_names_somebody_counts(authenticator, cas) -> None:
    proxy = shown(cas["proxies"].client("front-proxy-client"))
    pairs = (("X-Remote-User", ""), ("X-Second-User", "bob"))
    found = await user(authenticator, *pairs, certificates=proxy)
    assert found.name == "bob"


async def test_headers_without_a_certificate_are_anonymous(authenticator) -> None:
    assert await user(authenticator, *SPOOFED) == NOBODY


async def test_headers_beside_a_clients_certificate_are_not_looked_at(authenticator, cas) -> None:
    client = shown(cas["clients"].client("joe", ["dev", "ops"]))
    found = await user(authenticator, *SPOOFED, certificates=client)
    assert found == User("joe", ("dev", "ops", ALL))


async def test_headers_beside_a_clients_certificate_of_the_proxys_name_are_not_looked_at(
    authenticator, cas
) -> None:
    client = shown(cas["clients"].client("front-proxy-client"))
    found = await user(authenticator, *SPOOFED, certificates=client)
    assert found == User("front-proxy-client", (ALL,))


@pytest.mark.parametrize(
    "pair",
    [
        pytest.param(lambda cas: cas["strangers"].client("front-proxy-client"), id="stranger"),
        pytest.param(lambda cas: cas["proxies"].client("other"), id="name that is not allowed"),
        pytest.param(
            lambda cas: cas["proxies"].client("front-proxy-client", days=(-3, -1)), id="expired"
        ),
        pytest.param(
            lambda cas: cas["proxies"].client("front-proxy-client", days=(1, 2)), id="not yet"
        ),
        pytest.param(lambda cas: cas["proxies"].server("front-proxy-client"), id="server's"),
        pytest.param(lambda cas: cas["clients"].client("joe", days=(-3, -1)), id="expired client"),
    ],
)
async def test_a_certificate_that_is_not_good_is_refused(authenticator, cas, pair) -> None:
    with pytest.raises(UnauthenticatedError):
        await user(authenticator, *SPOOFED, certificates=shown(pair(cas)))


async def test_the_fault_of_a_certificate_is_reported(authenticator, cas) -> None:
    with pytest.raises(UnauthenticatedError) as caught:
        await user(authenticator, certificates=shown(cas["clients"].client("j", days=(-3, -1))))
    assert str(caught.value).endswith("not a client of this cluster: certificate has expired")


async def test_a_good_token_makes_up_for_a_strangers_certificate(authenticator, cas) -> None:
    stranger = shown(cas["strangers"].client("joe"))
    pair = ("Authorization", "bearer good")
    found = await user(authenticator, pair, certificates=stranger)
    assert found == User("robot", ("robots", ALL))


@pytest.mark.parametrize("token", ["bad", "down"])
async def test_a_token_that_is_not_good_or_cant_be_reviewed_is_refused(
    authenticator, token: str
) -> None:
    with pytest.raises(UnauthenticatedError):
        await user(authenticator, ("Authorization", f"Bearer {token}"))


@pytest.mark.parametrize("text", ["Basic abc", "Bearer", "Bearer ", "good"])
async def test_other_schemes_are_anonymous(authenticator, text: str) -> None:
    assert await user(authenticator, ("Authorization", text)) == NOBODY


async def test_without_trust_nobody_comes_by_certificate(cas) -> None:
    nobody = Authenticator(Trust, None)
    client = shown(cas["clients"].client("joe"))
    assert await user(nobody, *SPOOFED, certificates=client) == NOBODY


async def test_intermediates_come_from_the_client(cas, make_ca) -> None:
    middle = make_ca("middle", issuer=cas["clients"])
    leaf = middle.client("joe")
    bundle = CaBundle(cas["clients"].pem)
    assert bundle.subject(shown(leaf, (middle.pem,))) == Subject("joe", ())
    with pytest.raises(UntrustedError, match="unable to get local issuer certificate"):
        bundle.subject(shown(leaf))


def test_an_intermediate_in_the_bundle_is_an_anchor(cas, make_ca) -> None:
    middle = make_ca("middle", issuer=cas["clients"])
    assert CaBundle(middle.pem).subject(shown(middle.client("joe"))).common_name == "joe"


def test_a_leaf_can_not_sign(cas) -> None:
    pem, _ = cas["clients"].client("joe")
    with pytest.raises(UntrustedError):
        CaBundle(cas["clients"].pem).subject(shown(cas["strangers"].client("x"), (pem,)))


def test_more_certificates_than_any_chain_has_are_refused(cas) -> None:
    leaf = cas["clients"].client("joe")
    with pytest.raises(UntrustedError, match="found 11 certificates, expected 10 at most"):
        CaBundle(cas["clients"].pem).subject(shown(*[leaf] * 11))


@pytest.mark.parametrize(
    "pem", ["", "text", "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----"]
)
def test_a_bundle_needs_certificates(pem: str) -> None:
    with pytest.raises(ValueError, match="found"):
        CaBundle(pem)


def test_a_bundle_may_hold_several_cas_and_words_between(cas) -> None:
    both = CaBundle(f"# one\n{cas['clients'].pem}\n# two\n{cas['strangers'].pem}")
    assert both.subject(shown(cas["strangers"].client("s"))).common_name == "s"
    assert both.subject(shown(cas["clients"].client("c"))).common_name == "c"


def is_trusted(bundle, presented):
    try:
        return bool(bundle.subject(presented).common_name)
    except UntrustedError:
        return False


def test_a_verdict_holds_for_ten_seconds_and_no_longer(cas) -> None:
    seconds = [0.0]
    pem, client = cas["clients"].pem, shown(cas["clients"].client("joe", days=(-1, 4 / 86_400)))
    bundle = CaBundle(pem, lambda: seconds[0])
    assert bundle.subject(client).common_name == "joe"
    wait_until(lambda: not is_trusted(CaBundle(pem), client), "the certificate to expire")
    seconds[0] = 9.9
    assert is_trusted(bundle, client)
    seconds[0] = 10.0
    assert not is_trusted(bundle, client)


def test_what_strangers_showed_is_kept_up_to_a_number_of_bytes(cas) -> None:
    """Their connections are gone; what is remembered of them must not hold the certificates for good."""
    bundle, stranger = CaBundle(cas["clients"].pem), cas["strangers"].client("x")
    seen = []
    for _ in range(300):
        chain = shown(*[stranger] * 10)
        assert not is_trusted(bundle, chain)
        seen.append(weakref.ref(chain[0]))
        del chain
    gc.collect()
    kept = sum(each() is not None for each in seen)
    # A certificate takes 4 KiB and more.
    assert 0 < kept * 10 * 4 * 1024 <= 4 * 1024 * 1024
