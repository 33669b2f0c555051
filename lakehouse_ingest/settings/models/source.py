"""Where the records come from, and how the brokers let us in."""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from lakehouse_ingest.settings.field_types import ChosenPartitions, Pem, Secret, Seek, Start
from lakehouse_ingest.settings.models.base import SettingsModel


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _upper(value: object) -> object:
    return value.upper().replace("_", "-") if isinstance(value, str) else value


class SecuritySettings(SettingsModel):
    """How the brokers let us in. All Kafka clients of the pipeline use it."""

    protocol: Annotated[Literal["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"], BeforeValidator(_lower)] | None = (
        Field(
            examples=["sasl_ssl"],
            default=None,
            description="Security protocol. Without it: sasl_ssl if `mechanism`, `username` or `token_url` is set, ssl"
            " if `ca` or `certificate` is set, else plaintext.",
        )
    )
    mechanism: (
        Annotated[Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"], BeforeValidator(_upper)] | None
    ) = Field(
        examples=["SCRAM-SHA-512"],
        default=None,
        description="SASL mechanism. Without it: PLAIN if `username` is set, OAUTHBEARER if `token_url` is set.",
    )
    username: str | None = Field(examples=["ingest"], default=None, description="User name for PLAIN and SCRAM.")
    password: Secret | None = Field(examples=["…"], default=None, description="Password for PLAIN and SCRAM.")
    ca: Pem | None = Field(
        examples=["ca.pem"],
        default=None,
        description="CA certificates that signed the brokers' certificates: a file, or the PEM text. Without it: those"
        " of the system.",
    )
    certificate: Pem | None = Field(
        examples=["client.pem"], default=None, description="Client certificate: a file, or the PEM text."
    )
    key: Pem | None = Field(
        examples=["client.key"],
        default=None,
        description="Private key of the client certificate, encrypted or not: a file, or the PEM text.",
    )
    key_password: Secret | None = Field(
        examples=["…"], default=None, description="Password of the private key, if it is encrypted."
    )
    verify_hostname: bool = Field(default=True, description="Refuse a broker whose certificate does not name its host.")
    token_url: str | None = Field(
        examples=["https://login.example.com/oauth/tokens"],
        default=None,
        description="Address that issues the tokens for OAUTHBEARER.",
    )
    client_id: str | None = Field(examples=["ingest"], default=None, description="Client id for OAUTHBEARER.")
    client_secret: Secret | None = Field(examples=["…"], default=None, description="Client secret for OAUTHBEARER.")
    scope: str | None = Field(examples=["kafka"], default=None, description="Scope of the tokens for OAUTHBEARER.")

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        pairs = (("username", "password"), ("certificate", "key"), ("client_id", "client_secret"))
        for one, other in pairs:
            if (getattr(self, one) is None) != (getattr(self, other) is None):
                raise ValueError(f"should have both `{one}` and `{other}`, or neither")
        if self.key_password and not self.key:
            raise ValueError("should have a `key` for the `key_password`")
        if (self.client_id or self.token_url) and self.sasl != "OAUTHBEARER" and self.mechanism is None:
            raise ValueError("should have the mechanism OAUTHBEARER and a `token_url` for `client_id`")
        if (self.ca or self.certificate) and not self.over.endswith("ssl"):
            raise ValueError(f"should have the protocol ssl or sasl_ssl for `ca` and `certificate`, not {self.over}")
        if self.sasl in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512") and not self.username:
            raise ValueError(f"should have `username` and `password` for {self.sasl}")
        if self.sasl == "OAUTHBEARER" and not (self.token_url and self.client_id):
            raise ValueError("should have `token_url`, `client_id` and `client_secret` for OAUTHBEARER")
        if self.sasl and not self.over.startswith("sasl"):
            raise ValueError(f"should have the protocol sasl_ssl or sasl_plaintext for {self.sasl}, not {self.over}")
        if self.over.startswith("sasl") and not self.sasl:
            raise ValueError(f"should have a `mechanism` for {self.over}")
        return self

    @property
    def sasl(self) -> str | None:
        """The mechanism."""
        usual = "PLAIN" if self.username else "OAUTHBEARER" if self.token_url else None
        return self.mechanism or usual

    @property
    def over(self) -> str:
        """The protocol."""
        usual = "ssl" if self.ca or self.certificate else "plaintext"
        return self.protocol or ("sasl_ssl" if self.sasl else usual)


class SourceSettings(SettingsModel):
    """The Kafka cluster, and where reading begins."""

    kind: str = Field(
        default="kafka",
        min_length=1,
        description="What the records are read from: kafka, or the name of an entry point in the group"
        " lakehouse_ingest.sources.",
    )
    brokers: str = Field(default="localhost:9092", min_length=1, description="Bootstrap servers, comma-separated.")
    security: SecuritySettings = SecuritySettings()
    start: Start = Field(
        default="earliest",
        description="Where to begin in a topic that no table holds yet: earliest, latest, a time with its zone, or"
        " offsets { topic = { partition = first offset to read } }. latest is meant for topics that exist when the"
        " pipeline first starts. A transaction that is open at that moment is still read.",
    )
    seek: Seek = Field(
        default={},
        description="Takes precedence over `start`: the last offset of each partition that need not be read,"
        " { topic = { partition = offset } }. Like `start` it is used only where no table holds the topic yet.",
    )
    partitions: ChosenPartitions = Field(
        default={},
        description="Read only these partitions of a topic, { topic = [0, 1] }, so that other pipelines can read the"
        " others into the same table. Partitions that are added to the topic later are then not read.",
    )
    isolation: Literal["read_committed", "read_uncommitted"] = Field(
        default="read_committed",
        description="read_committed leaves out records of aborted transactions, and waits for open ones to end.",
    )
    options: Mapping[str, str] = Field(
        default={},
        description="Further settings of the Kafka clients, in the spelling of Java, librdkafka or kafka-python. For"
        " another `kind`: all of its settings.",
    )
