"""What is shown or stored in place of a secret: the one place that knows how a secret looks.

A value is a secret by its name (`api_key`, `--password`), or by its form: a password in a URL, a
token that begins as those of a known service do, or a long text without meaning. What a run needs to
start keeps its secrets (config.json); all that people or other programs read passes through here.
Nothing here reads a file.
"""

import functools
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

HIDDEN = "(not shown)"
PARTS = (
    *("TOKEN", "SECRET", "PASS", "KEY", "CREDENTIAL", "AUTH", "JWT", "PWD"),
    *("COOKIE", "SESSION", "SIGNATURE"),
)
"""Any of these within the name of an environment variable makes it a secret."""
WORDS = frozenset(
    (
        *PARTS,
        *("PASSWORD", "PASSWORDS", "PASSWD", "PASSPHRASE", "PASSCODE", "SIG", "BEARER"),
        *("APIKEY", "ACCESSKEY", "SECRETKEY", "PRIVATEKEY", "AUTHTOKEN", "AUTHORIZATION"),
        *("CREDENTIALS", "TOKENS", "SECRETS", "COOKIES"),
    )
)
"""Any of these as a whole word in the name of a setting or an option makes it a secret."""
EVEN_NUMBERS = frozenset(("PASSWORD", "PASSWD", "PASSPHRASE", "PASSCODE", "SECRET"))
"""Words of names whose values are secret even where they are numbers: `max_tokens` is shown."""
NO_SECRETS = frozenset(
    (
        *("COMMIT", "REVISION", "REV", "HASH", "SHA", "SHA1", "SHA256", "MD5"),
        *("DIGEST", "CHECKSUM", "FINGERPRINT", "ID", "UUID"),
    )
)
"""Words of names whose values are long and without meaning, but known to all."""
ORIGINS = "origins"
"""A table with the names of settings, and who set each."""

CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
NUMBER = re.compile(r"[-+]?[\d_]*\.?\d+(e[-+]?\d+)?", re.IGNORECASE)
SUSPECT = re.compile(
    r"://|[=:]|--|eyJ|gh[a-z]_|github_pat_|glpat-|A[KS]IA|AIza|hf_|sk-|xox|SG\.|npm_|pypi-|[\w+/-]{32}|PRIVATE KEY"
)
"""What every text that may hold a secret has somewhere; most texts have none of it."""
URL_PASSWORD = re.compile(r"(?<=://)[^\s/@:]*:[^\s/]*(?=@)")
PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*-----|\Z)", re.DOTALL
)
AUTHORIZATION = re.compile(r"(?i)(\bauthorization\W+(?:\w+\s+)?)[^\s'\"]+")
KNOWN_FORM = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"eyJ[\w-]{6,}(?:\.[\w-]*)*"  # a JSON Web Token, such as Slurm's
    r"|gh[pousr]_\w{4,}|github_pat_\w{4,}|glpat-[\w-]{4,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{8,}"
    r"|hf_(?:(?=[A-Za-z]*[A-Z0-9])[A-Za-z0-9]{8,}|[A-Za-z0-9]{20,})"
    r"|sk-(?=[\w-]*\d)[\w-]{20,}|xox[abeoprs]-[\w-]{8,}|AIza[\w-]{20,}"
    r"|SG\.[\w-]{8,}(?:\.[\w-]+)*|npm_\w{20,}|pypi-[\w-]{16,}"
    r")"
)
OF_SECRET_NAME = re.compile(
    r"""(?P<head>(?P<name>[A-Za-z_][\w.-]*)(?:["']?\s*=\s*|["']\s*:\s*|=))"""
    r"""(?P<value>"[^"]*"|'[^']*'|[^\s&;,"'})\]]+)"""
)
OF_SECRET_OPTION = re.compile(
    r"""(?P<head>--(?P<name>[A-Za-z][\w.-]*)\s+)(?P<value>"[^"]*"|'[^']*'|[^\s"'-]\S*)"""
)
LONG_WORD = re.compile(r"(?<![\w+/.~-])[A-Za-z0-9+/_-]{32,}={0,2}(?![\w+/.~-])")
OF_A_WORD = re.compile("[a-z]{3,}")
FEW_WORDS = 0.4
"""In a name or a path most letters are in runs of small ones; in random text few are."""
LONGEST_PIECE = 10


# names --------------------------------------------------------------------------------------------


def is_secret_variable(name: str) -> bool:
    """Return whether an environment variable may hold a secret: any part of its name decides."""
    return any(word in name.upper() for word in PARTS)


@functools.lru_cache(4096)
def is_secret_setting(name: str) -> bool:
    """Return whether a setting or an option may hold a secret. Only whole words decide: `api_key`
    and `apiKey` do, but `tokenizer` and `passes` do not."""
    return not WORDS.isdisjoint(split_name(name))


def split_name(name: str) -> list[str]:
    return [*re.split(r"[^A-Z0-9]+", CAMEL.sub("_", name).upper()), name.upper()]


def hides(name: str, value: Any) -> bool:
    """Return whether the value of a setting is hidden because of its name."""
    if value in ("", None) or isinstance(value, bool) or not is_secret_setting(name):
        return False
    is_number = isinstance(value, int | float) or NUMBER.fullmatch(str(value)) is not None
    return not is_number or not EVEN_NUMBERS.isdisjoint(split_name(name))


# values -------------------------------------------------------------------------------------------


def redact_text(text: str, name: str = "") -> str:
    """Return a text without the secrets in it, whatever it is part of. Its `name` may say that long
    texts without meaning are not secret: `revision`."""
    if len(text) < 6 or not SUSPECT.search(text):
        return text
    return _redact_text(text, not NO_SECRETS.isdisjoint(split_name(name)))


@functools.lru_cache(4096)
def _redact_text(text: str, is_public: bool) -> str:
    text = PRIVATE_KEY.sub(HIDDEN, text)
    text = URL_PASSWORD.sub(HIDDEN, text)
    text = AUTHORIZATION.sub(rf"\1{HIDDEN}", text)
    for pattern in (OF_SECRET_NAME, OF_SECRET_OPTION):
        text = pattern.sub(_hide_named, text)
    text = KNOWN_FORM.sub(HIDDEN, text)
    return text if is_public else LONG_WORD.sub(_hide_random, text)


def _hide_named(found: re.Match[str]) -> str:
    value = found["value"].strip("\"'")
    if hides(found["name"], value):
        return f"{found['head']}{HIDDEN}"
    return found["head"] + found.re.sub(_hide_named, found["value"])  # url=https://host/?token=...


def _hide_random(found: re.Match[str]) -> str:
    return HIDDEN if is_random(found[0]) else found[0]


def is_random(text: str) -> bool:
    """Return whether a text of 32 or more letters of base64 may be a token: no path and no name."""
    body = text.rstrip("=")
    digit, small, large = (any(map(kind, body)) for kind in (str.isdigit, str.islower, str.isupper))
    pieces = re.split("[-_]", body)
    longest = max(pieces, key=len)
    if "/" in body:
        return not body.startswith("/") and digit and small and large and _has_few_words(body)
    if len(longest) >= 32:
        letters = re.sub(r"[\d+]", "", longest)
        if len(letters) < len(longest) and letters:
            return True
        return small and large and _has_few_words(body)
    few = len(longest) >= LONGEST_PIECE and _has_few_words(body)
    return digit and small and large and few


def _has_few_words(text: str) -> bool:
    return sum(map(len, OF_A_WORD.findall(text))) < FEW_WORDS * len(text)


def redact_words(words: Sequence[str]) -> list[str]:
    """Return the words of a command without secrets: the value of `--password` or `token=`, too."""
    shown, option = [], ""
    for word in words:
        name, equals, value = word.partition("=")
        if option and not word.startswith("--") and hides(option, word):
            shown.append(HIDDEN)
        elif equals and hides(name.lstrip("-"), value) and " " not in name:
            shown.append(f"{name}={HIDDEN}")
        else:
            shown.append(redact_text(word, option or name.lstrip("-")))
        option = word.lstrip("-") if word.startswith("-") and not equals else ""
    return shown


def redact(value: Any, name: str = "") -> Any:
    """Return plain data, such as config.json, without secrets. Lists of words are commands."""
    if isinstance(value, str):
        return HIDDEN if hides(name, value) else redact_text(value, name)
    if isinstance(value, Mapping):
        if name == ORIGINS:
            return dict(value)
        return {key: redact(inner, str(key)) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        if not hides(name, "word") and all(isinstance(inner, str) for inner in value):
            return redact_words(value)
        return [redact(inner, name) for inner in value]
    return HIDDEN if isinstance(value, int | float) and hides(name, value) else value


def redact_variables(variables: Mapping[str, Any]) -> dict[str, str]:
    """Return environment variables without secrets."""
    return {
        name: HIDDEN if is_secret_variable(name) else redact_text(str(value), name)
        for name, value in variables.items()
    }


OF_VARIABLES = (
    ("cluster", "variables"),
    ("cluster", "env"),  # as rampup 0.1.0 called it
    ("cluster", "spark"),
    ("environment", "variables"),
)
"""Tables of config.json whose values may be secrets, whatever their names."""


def redact_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return config.json as it is shown."""
    shown: dict[str, Any] = redact(config)
    for table, key in OF_VARIABLES:
        inner = config.get(table)
        if isinstance(inner, Mapping) and isinstance(inner.get(key), Mapping):
            shown[table][key] = redact_variables(inner[key])
    return shown


def to_stored(value: Any, name: str = "") -> Any:
    """Return the value of a setting as JSON can hold it, without secrets."""
    if isinstance(value, Mapping):
        return {str(key): to_stored(inner, str(key)) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return redact([to_stored(inner, name) for inner in value], name)
    is_plain = value is None or isinstance(value, bool | int)
    if is_plain or (isinstance(value, float) and math.isfinite(value)):
        return redact(value, name)
    return redact(str(value), name)
