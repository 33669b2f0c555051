"""What must not be shown: which keys hold secrets, and the secrets of the settings."""

import re
from collections.abc import Iterator, Mapping

from pydantic import BaseModel, SecretStr

# Keys of a catalog, of a Kafka client, of a store; `url` because that of a database may carry its password. Spark
# holds it against values too: the last is an address with a login.
HIDDEN_KEYS = (
    r"(?i)url|secret|passw|passphrase|token|credential|jaas|keystore|truststore|authorization|cookie|header\."
    r"|(access|account|api|private|sas|sse|cryption)[._-]?key|://[^/\s@]+@"
)
SHORTEST = 4  # what is shorter would hide half of every line
SCHEMES = ("Bearer ", "Basic ")  # what may stand before a token
FREE_FORM = ("options", "properties")


def secrets_of(settings: BaseModel) -> frozenset[str]:
    """Every secret's value; of `id:secret` and of `Bearer token` the second part too."""
    # Of keys that are not ours many are but switches.
    whole = {value for value in _found(settings) if not re.fullmatch(r"(?i)true|false|none|\d+", value)}
    parts = {value.partition(":")[2] for value in whole if "\n" not in value}
    parts |= {value.partition(" ")[2] for value in whole if value.startswith(SCHEMES)}
    return frozenset(value for value in whole | parts if len(value) >= SHORTEST)


def _found(value: object, *, free: bool = False) -> Iterator[str]:
    """`free`: a mapping whose keys are not ours, so that only their names tell what they hold."""
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
