"""Spark's own settings that a pipeline relies on; `spark.options` may set any other.

tests/live/test_settings_in_use.py tries those of the others that look as if they could change the written rows.
"""

import re
from collections.abc import Mapping

CATALOG = "spark.sql.catalog.lake"
OVERFLOW = "a number that does not fit would silently become another number"

RELIED_ON: Mapping[str, tuple[str, str]] = {
    "spark.sql.caseSensitive": ("true", "fields that differ only by case are two fields"),
    "spark.sql.session.timeZone": ("UTC", "a time without a zone is in UTC"),
    "spark.sql.timestampType": ("TIMESTAMP_LTZ", "a time is a point in time, whatever its zone"),
    "spark.sql.ansi.enabled": ("true", OVERFLOW),
    "spark.sql.storeAssignmentPolicy": ("ANSI", OVERFLOW),
    "spark.sql.variant.allowDuplicateKeys": ("true", "the last value of a repeated key counts"),
    "spark.sql.extensions": (
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "Iceberg's procedures expire the snapshots",
    ),
}
# By their first letters; a catalog with the name `lakehouse` would be another one.
NOT_TAKEN: Mapping[str, str] = {
    f"{CATALOG}.": "Spark and the ledger need the same catalog; set properties of both in `catalog.properties`",
    "spark.wap.": "the pipeline decides where rows wait until they are published",
    "spark.sql.legacy.": "it may change what a value means",
    "spark.redaction.": "secrets would be shown",
    "spark.sql.redaction.": "secrets would be shown",
}


def checked(options: Mapping[str, str]) -> Mapping[str, str]:
    for name, value in options.items():
        # Spark's launcher reads `key=value`: a key that contains `=` would set another option.
        if not re.fullmatch(r"[\w.$/:*-]+", name):
            raise ValueError(f"should have no key such as {name[:60]!r}: keys are letters, digits and . _ - $ / : *")
        if why := next((why for start, why in NOT_TAKEN.items() if f"{name}.".startswith(start)), None):
            raise ValueError(f"should not set {name}: {why}")
        needed, why = RELIED_ON.get(name, (value, ""))
        # The extensions are a list, which the needed one is a part of.
        parts = value.split(",") if name == "spark.sql.extensions" else [value]
        if needed.casefold() not in (part.strip().casefold() for part in parts):
            raise ValueError(f"should not set {name}, which is {needed} here: {why}")
    return options
