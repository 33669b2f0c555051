"""Where the tables are registered, and how we log in there."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from lakehouse_ingest.settings.field_types import Dotted, Seconds, Secret
from lakehouse_ingest.settings.models.base import SettingsModel


def _folder(value: object) -> object:
    if "://" in str(value):
        raise ValueError("should be a folder of this machine; for tables on S3 set `catalog.warehouse` instead")
    return value


class CatalogSettings(SettingsModel):
    """The Iceberg REST catalog."""

    uri: str | None = Field(
        examples=["http://localhost:8181"],
        default=None,
        description="Address of the REST catalog. Without it an embedded catalog serves the folder `path`.",
    )
    path: Annotated[Path, BeforeValidator(_folder)] = Field(
        default=Path("lakehouse"), description="Folder of the embedded catalog and of its tables."
    )
    warehouse: str | None = Field(
        examples=["prod"],
        default=None,
        description="The catalog's own name for the warehouse. For the embedded catalog: an s3:// location for its"
        " tables.",
    )
    namespace: Dotted = Field(default="ingest", description="Namespace of the tables.")
    create: bool = Field(
        default=True,
        description="Create the namespace and the tables that are missing. With false, a start without one of them is"
        " refused, and records whose type has no table become dead-letter records.",
    )
    token: Secret | None = Field(examples=["…"], default=None, description="Bearer token.")
    credential: Secret | None = Field(
        examples=["client-id:secret"], default=None, description="OAuth2 client credentials, as client-id:secret."
    )
    oauth2_server: str | None = Field(
        examples=["https://login.example.com/oauth/tokens"],
        default=None,
        description="Address that issues the tokens. Without it: the catalog's own token endpoint.",
    )
    scope: str | None = Field(
        examples=["catalog"], default=None, description="OAuth2 scope of the tokens. Without it: catalog."
    )
    headers: Mapping[str, Secret] = Field(default={}, description="Further headers of every request to the catalog.")
    sign_for: str | None = Field(
        examples=["s3tables"],
        default=None,
        description="Sign requests with AWS SigV4 for this service, glue or s3tables, with the keys of `s3`. Needs the"
        " extra lakehouse-ingest[s3].",
    )
    sign_region: str | None = Field(
        examples=["eu-central-1"],
        default=None,
        description="AWS region of these signatures. Without it: the region of `s3`.",
    )
    vended_credentials: bool = Field(
        default=False,
        description="Ask the catalog for credentials to the files of each table, and use them instead of `s3`.",
    )
    publish: Literal["branch", "direct"] = Field(
        default="branch",
        description="Where rows wait until they are published: on a branch of the table, or, with direct, in a"
        " snapshot without a branch. Use direct if the catalog allows no branches. It costs one small commit for each"
        " table and start.",
    )
    timeout: Seconds = Field(
        default=60.0, gt=0, description="A request to the catalog fails if no answer comes within this time."
    )
    properties: Mapping[str, str] = Field(
        default={},
        description="Further catalog properties, for Spark and for pyiceberg. A property that names a class of yours"
        " needs --allow-code.",
    )
