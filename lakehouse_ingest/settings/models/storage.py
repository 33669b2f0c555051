"""Where the files of the tables are stored."""

from typing import Self

from pydantic import Field, model_validator

from lakehouse_ingest.settings.field_types import Secret
from lakehouse_ingest.settings.models.base import SettingsModel


class S3Settings(SettingsModel):
    """An S3 store. What is missing comes from AWS's own chain: variables, profile, role."""

    endpoint: str | None = Field(
        examples=["http://localhost:9000"],
        default=None,
        description="Address of a store other than AWS, such as http://minio:9000.",
    )
    region: str | None = Field(
        examples=["eu-central-1"],
        default=None,
        description="Region of the bucket. Without it: us-east-1 if `endpoint` is set, else what AWS's own chain says.",
    )
    path_style: bool = Field(
        default=False,
        description="Put the bucket into the path instead of the host name. Most stores other than AWS need this.",
    )
    access_key: Secret | None = Field(
        examples=["…"],
        default=None,
        description="Access key, together with `secret_key`. Without both: AWS's own chain.",
    )
    secret_key: Secret | None = Field(
        examples=["…"], default=None, description="Secret key, together with `access_key`."
    )
    session_token: Secret | None = Field(examples=["…"], default=None, description="Session token of temporary keys.")

    @model_validator(mode="after")
    def _keys_come_in_pairs(self) -> Self:
        if (self.access_key is None) != (self.secret_key is None):
            raise ValueError("should have both `access_key` and `secret_key`, or neither")
        return self
