"""Takes secrets out of objects and texts that leave a cluster.

It prefers to take out too much. What is kept of objects by rule is their shape: values of environment
variables and unknown annotations are taken out whatever they look like. What is taken out of free text goes
by names such as `password=`, and by forms such as those of tokens. A secret that was seen in an object is
found again in any text.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence

REDACTED = "(redacted)"

_WORD = (
    r"(?:pass(?:word|wd|phrase|code)|pwd|secret|token(?!s|iz)|credential|auth(?!ors?\b)|cookie"
    r"|(?:api|access|account|private|client|shared|signing|encryption|master|storage)[_.-]?key"
    r"|session[_.-]?id|dsn\b|conn(?:ection)?[_.-]?str|certificate[_.-]data)"
)
_SECRET = re.compile(_WORD, re.IGNORECASE)
_HARMLESS = re.compile(
    r"(?:file|path|name|names|ref|dir|namespace|mode|class|ttl|seconds|count|policy|type)$",
    re.IGNORECASE,
)
"""Ends of names that say where a secret is, and not what it is: secretName, passwordFile."""
_VALUE = (
    r"""(?:\\+"[^"\n]*"?|"(?:[^"\n\\]|\\.)*"?|'[^'\n]*'?"""
    r"""|[|>][+-]?[ \t]*\n(?:[ \t]+[^\n]*\n?)+|[^\s"']+)"""
)
_NAMED = re.compile(
    rf"({_WORD}[\w.-]{{0,40}})(\\*[\"']?[ \t]{{0,3}}[:=][ \t]{{0,3}}){_VALUE}", re.IGNORECASE
)
_FLAG = re.compile(
    rf"(?<!\S)(--?[\w-]{{0,40}}{_WORD}[\w-]{{0,40}})( +)(?!-){_VALUE}", re.IGNORECASE
)
_URL_USER = re.compile(
    r"""([a-z][a-z0-9+.-]{1,20}://)([^\s"'<>/?#@:]*:[^\s"'<>]*|[^\s"'<>/?#@]+)@""", re.IGNORECASE
)
_FORMS = (
    re.compile(r"-----BEGIN [A-Z0-9 ]+-----.*?(?:-----END [A-Z0-9 ]+-----|\Z)", re.DOTALL),
    re.compile(r"\bLS0tLS1CRUdJTi[A-Za-z0-9+/=\s]*"),  # the same in base64
    re.compile(
        r"\beyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]{5,}(?:\.[A-Za-z0-9_-]*)?"
    ),  # JSON Web Tokens
    re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    re.compile(r"\bAIza[A-Za-z0-9_-]{30,}"),
    re.compile(
        r"\b(?:gh[pousr]_|github_pat_|glpat-|xox[a-z]-|sk-|sk_live_|rk_live_|hf_|nvapi-|npm_|pypi-|dckr_pat_|dop_v1_"
        r"|hvs\.|SG\.|sha256~)[A-Za-z0-9._-]{10,}"
    ),
    re.compile(r"\$2[abxy]\$\d\d\$[./A-Za-z0-9]{53}"),  # bcrypt
    re.compile(r"hooks\.slack\.com/\S+"),
    re.compile(r"(?<=[?&])(?:sig|signature|code|key)=[^&\s\"']+", re.IGNORECASE),
    re.compile(r"(?<![\w:@-])[0-9a-f]{32,}(?![\w-])", re.IGNORECASE),  # but digests, sha256:...
)
_SCHEME = re.compile(
    r"\b(Bearer|Basic|Digest|Negotiate|ApiKey)(\s+)[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE
)
_HEADER = re.compile(
    r"""((?:authorization|cookie)[\w-]{0,20}\\*["']?[ \t]*[:=][ \t]*)\\*["']?[^\n"']+""",
    re.IGNORECASE,
)
_LONG = re.compile(r"[A-Za-z0-9+/=]{32,}|[A-Za-z0-9_-]{32,}")
_LEAST_BITS = 4.5
"""A letter: of 40 random letters of base64 there are about five, of names and paths four."""
_LEAST_KNOWN = 8
"""Letters of a secret that is looked for everywhere."""
_ANNOTATIONS = (
    "autoscaling.keda.sh/", "autoscaling.alpha.kubernetes.io/", "cluster-autoscaler.kubernetes.io/",
    "deployment.kubernetes.io/", "gpuscale.dev/", "karpenter.sh/", "kueue.x-k8s.io/", "nvidia.com/",
    "prometheus.io/", "scheduling.k8s.io/", "volcano.sh/",
)  # fmt: skip
"""Beginnings of keys of annotations whose values are read; those of tools hold whole objects."""


class Redactor:
    """Takes secrets out, and remembers those it has seen.

    Attributes:
        taken_out: how often something was, by why.
    """

    def __init__(self) -> None:
        self.taken_out: Counter[str] = Counter()
        self._seen: set[str] = set()
        self._seen_again: re.Pattern[str] | None = None

    def document(self, value: object) -> object:
        """Return a document without secrets; the order and the names of its fields stay."""
        return self._value(value, is_secret=False)

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        if self._seen and self._seen_again is None:
            longest_first = sorted(self._seen, key=len, reverse=True)
            self._seen_again = re.compile("|".join(map(re.escape, longest_first)))
        if self._seen_again is not None:
            text = self._replaced(self._seen_again, REDACTED, text, "seen before")
        for form in _FORMS:
            text = self._replaced(form, REDACTED, text, "looks like a secret")
        text = _URL_USER.sub(self._without_user, text)
        text = self._replaced(_HEADER, rf"\1{REDACTED}", text, "header")
        text = self._replaced(_SCHEME, rf"\1\2{REDACTED}", text, "header")
        text = _NAMED.sub(self._without_value, text)
        text = _FLAG.sub(self._without_value, text)
        return _LONG.sub(self._without_noise, text)

    def _replaced(self, pattern: re.Pattern[str], by: str, text: str, why: str) -> str:
        text, count = pattern.subn(by, text)
        if count:
            self.taken_out[why] += count
        return text

    def _without_user(self, match: re.Match[str]) -> str:
        self.taken_out["URL with a user"] += 1
        self._remember(match[2].rpartition(":")[2])
        return f"{match[1]}{REDACTED}@"

    def _without_value(self, match: re.Match[str]) -> str:
        if _HARMLESS.search(match[1]) or match[0].endswith(REDACTED):
            return match[0]
        self.taken_out["named as a secret"] += 1
        return f"{match[1]}{match[2]}{REDACTED}"

    def _without_noise(self, match: re.Match[str]) -> str:
        found = match[0]
        counts = Counter(found)
        bits = -sum(n / len(found) * math.log2(n / len(found)) for n in counts.values())
        is_mixed = all(
            any(test(x) for x in found) for test in (str.isupper, str.islower, str.isdigit)
        )
        if not is_mixed or bits < _LEAST_BITS:
            return found
        self.taken_out["looks like a secret"] += 1
        return REDACTED

    def _value(self, value: object, *, is_secret: bool) -> object:
        if isinstance(value, str):
            return self._hidden(value, "named as a secret") if is_secret else self.text(value)
        if isinstance(value, Mapping):
            return self._mapping(value)
        if isinstance(value, Sequence):
            found = []
            is_next = False  # after a flag such as --api-key, whose value is a word of its own
            for each in value:
                found.append(self._value(each, is_secret=is_secret or is_next))
                is_next = isinstance(each, str) and each.startswith("-") and _is_secret(each)
            return found
        return value

    def _mapping(self, value: Mapping[object, object]) -> object:
        if value.get("kind") == "Secret" and ("data" in value or "stringData" in value):
            self.taken_out["Secret"] += 1
            return {"kind": "Secret", "data": REDACTED}
        given = value.get("value")
        name = value.get("name")
        found: dict[object, object] = {}
        for key, each in value.items():
            shown = self.text(key) if isinstance(key, str) else key
            if key == "managedFields":
                continue
            if key == "value" and isinstance(name, str) and isinstance(given, str):
                # A variable of the environment, or a header of a probe.
                found[shown] = self._hidden(given, "environment", remembers=_is_secret(name))
            elif key == "annotations" and isinstance(each, Mapping):
                found[shown] = {
                    self.text(str(known)): self._value(text, is_secret=False)
                    if str(known).startswith(_ANNOTATIONS)
                    else self._hidden(str(text), "annotation", remembers=False)
                    for known, text in each.items()
                }
            elif key == "binaryData":
                found[shown] = REDACTED
            else:
                found[shown] = self._value(each, is_secret=_is_secret(str(key)))
        return found

    def _hidden(self, value: str, why: str, *, remembers: bool = True) -> str:
        if not value or value == REDACTED:
            return value
        self.taken_out[why] += 1
        if remembers:
            self._remember(value)
        else:
            self.text(value)  # remembers what is in it, such as the password of a URL
        return REDACTED

    def _remember(self, secret: str) -> None:
        """Look for a secret in all texts from now on, unless it may be a word of the language."""
        if len(secret) >= _LEAST_KNOWN and (not secret.isalpha() or len(secret) > 12):
            self._seen.add(secret)
            self._seen_again = None


def _is_secret(name: str) -> bool:
    return "=" not in name and bool(_SECRET.search(name)) and not _HARMLESS.search(name)
