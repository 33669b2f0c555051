"""What must not be shown: the one list of words that name secrets, and the secrets of the settings.

Telemetry, the catalog and Spark hide secrets as well. `observe`, `tables` and `environment` hand them this list,
each at its door, so that a new word has to be added here only.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, SecretStr

HIDDEN = "**********"  # as pydantic writes a secret

# Words within the name of a key whose value is a secret: of a catalog, a Kafka client, a store, a collector.
WORDS = (
    r"passw|passphrase|secret|token|credential|authori[sz]ation|cookie|jaas|proxy-uri"
    r"|(?:access|account|api|private|sas|sse|cryption)[._-]?key|key[._-]?pem|\bheader\."
)
# What Spark hides: also PEM texts that are called stores, and `url`, because the address of a database may carry a
# password. Spark matches values with it, too: the last alternative is an address with a login.
HIDDEN_KEYS = rf"(?i){WORDS}|keystore|truststore|url|://[^/\s@]+@"
# What the catalog package hides in errors of the catalog.
SECRET_KEYS = rf"(?i){WORDS}|sas"
# Settings of ours that hold a secret, and whose names do not say so.
_OURS = re.compile(rf"(?i){WORDS}|headers|properties|options|certificate|(?:^|\.)(?:ca|key)$")

SHORTEST = 4  # what is shorter would hide half of every line
SCHEMES = ("Bearer ", "Basic ")  # what may stand before a token
FREE_FORM = ("options", "properties")


def is_secret(setting: str) -> bool:
    """Whether a refusal must not show the value of this setting, given as `catalog.token`."""
    return _OURS.search(setting) is not None


def without_login(value: Any) -> Any:
    """An address without user and password."""
    return re.sub(r"(?<=://)[^/@\s]+@", f"{HIDDEN}@", value) if isinstance(value, str) else value


def revealed(secret: SecretStr | None) -> str | None:
    """The text itself."""
    return secret.get_secret_value() if secret else None


def secrets_of(settings: BaseModel) -> frozenset[str]:
    """Every secret's value; of `id:secret` and of `Bearer token` the second part too."""
    # A property that belongs to others may be named like a secret, and be only a switch.
    whole = {value for value in _found(settings) if not re.fullmatch(r"(?i)true|false|none|\d+", value)}
    parts = {value.partition(":")[2] for value in whole if "\n" not in value}
    parts |= {value.partition(" ")[2] for value in whole if value.startswith(SCHEMES)}
    return frozenset(value for value in whole | parts if len(value) >= SHORTEST)


def _found(value: object, *, free: bool = False) -> Iterator[str]:
    """`free`: the keys of this mapping are not ours, so only their names say which values are secrets."""
    match value:
        case SecretStr():
            yield value.get_secret_value()
        case BaseModel():
            for name, inner in value:
                yield from _found(inner, free=name in FREE_FORM)
        case Mapping():
            for key, inner in value.items():
                if free and isinstance(inner, str) and re.search(HIDDEN_KEYS, str(key)):
                    yield inner
                yield from _found(inner)
        case tuple():
            for inner in value:
                yield from _found(inner)
