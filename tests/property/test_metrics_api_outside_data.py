# mypy: disable-error-code="arg-type"
"""What comes from outside ends in a result or in its own error: headers, paths, documents, certificates."""

import asyncio
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict, CIMultiDictProxy

from gpuscale.base.errors import ConfigError, NotFoundError, UsageError
from gpuscale.cli.servers.serving import plain_arguments
from gpuscale.server.metricsapi.cluster import aggregated_types, listed_types
from gpuscale.server.metricsapi.security.authentication import (
    Authenticator,
    RequestCredentials,
    UnauthenticatedError,
)
from gpuscale.server.metricsapi.security.authorization import attributes_of, forbidden_message
from gpuscale.server.metricsapi.security.chains import CaBundle
from gpuscale.server.metricsapi.security.reviews import (
    NOBODY,
    RequestHeaders,
    Trust,
    User,
    trust_of_config_map,
)
from gpuscale.server.metricsapi.settings import FLAGS, read_settings
from gpuscale.server.metricsapi.wire.aggregated import aggregated_version, matches

WORDS = """
items metadata name versions version resources resource responseKind kind verbs scope singularResource
namespaced list x
"""
KEYS = st.sampled_from(WORDS.split())
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | KEYS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)
OBJECTS = st.dictionaries(KEYS, JSON, max_size=5)
METHODS = st.sampled_from(["GET", "HEAD", "POST", "OPTIONS", "X"])


@given(OBJECTS)
def test_any_discovery_document_gives_whole_resources(body) -> None:
    for found in (*aggregated_types(body), *listed_types("g", "v1", body)):
        assert found.plural
        assert found.kind
        assert "/" not in found.plural


@given(st.text(max_size=200) | st.from_regex(r"[a-z*/;=,q.0-9 ]{0,80}", fullmatch=True))
def test_any_accept_header_gives_a_document(accept) -> None:
    assert aggregated_version(accept) in (None, "v2", "v2beta1")
    matches(accept, '"tag"')


@given(METHODS, st.text(max_size=60) | st.from_regex(r"(/[a-z%*0-9.]{0,6}){0,9}", fullmatch=True))
def test_any_path_can_be_asked_about_and_refused(method, path) -> None:
    attributes = attributes_of(method, path, path)
    assert attributes.verb
    assert attributes.is_resource == bool(attributes.resource)
    assert forbidden_message(User("u"), attributes)


@given(
    st.dictionaries(
        st.sampled_from(
            [
                "requestheader-client-ca-file",
                "client-ca-file",
                "requestheader-allowed-names",
                "requestheader-username-headers",
            ]
        ),
        st.text(max_size=20),
    )
)
def test_any_config_map_gives_trust_or_a_value_error(data) -> None:
    with suppress(ValueError):
        trust_of_config_map(data)


@given(
    st.text(max_size=60)
    | st.binary(max_size=60).map(
        lambda data: f"-----BEGIN CERTIFICATE-----\n{data.hex()}\n-----END CERTIFICATE-----\n"
    )
)
def test_any_text_is_no_ca_bundle(pem) -> None:
    with pytest.raises(ValueError, match="found"):
        CaBundle(pem)


HEADERS = st.lists(
    st.tuples(
        st.sampled_from(["X-Remote-User", "x-remote-group", "X-Remote-Extra-a%2", "Authorization"]),
        st.text(max_size=12),
    ),
    max_size=5,
)


class NoTokens:
    async def review(self, token):
        return None


@given(HEADERS)
def test_no_headers_alone_make_anyone_but_nobody(pairs) -> None:
    trusted = Trust(None, RequestHeaders("no matter"))
    authenticator = Authenticator(lambda: trusted, NoTokens())
    with suppress(UnauthenticatedError):
        headers = CIMultiDictProxy(CIMultiDict(pairs))
        assert asyncio.run(authenticator.user(RequestCredentials(headers))) == NOBODY


TEXTS = st.text(max_size=12) | st.sampled_from(
    ["0", "1", "true", "10m", "GET", "a,b", "99999999999"]
)


@given(
    st.dictionaries(
        st.sampled_from(list(FLAGS)), st.lists(TEXTS, min_size=1, max_size=2), max_size=6
    )
)
def test_any_flags_give_settings_or_an_error(given_flags) -> None:
    with suppress(UsageError, ConfigError, NotFoundError):
        read_settings({"config": ["r"], **given_flags})


@given(
    st.lists(st.text(max_size=10) | st.sampled_from([f"--{name}" for name in FLAGS]), max_size=6)
)
def test_any_arguments_are_read(arguments) -> None:
    plain_arguments(arguments)
