"""Spark's own settings that a pipeline relies on: as `spark.options` any other may be set.

Of the others, those that look as if they could change what lands are tried in tests/live/test_settings_in_use.py.
"""

import re
from collections.abc import Mapping

CATALOG = "spark.sql.catalog.lake"
OVERFLOW = "a number that does not fit would become another one, unseen"

RELIED_ON: Mapping[str, tuple[str, str]] = {
    "spark.sql.caseSensitive": ("true", "fields that differ only by case are two fields"),
    "spark.sql.session.timeZone": ("UTC", "a time without a zone is one of UTC"),
    "spark.sql.timestampType": ("TIMESTAMP_LTZ", "a time is a moment, whatever its zone"),
    "spark.sql.ansi.enabled": ("true", OVERFLOW),
    "spark.sql.storeAssignmentPolicy": ("ANSI", OVERFLOW),
    "spark.sql.variant.allowDuplicateKeys": ("true", "a key that comes twice has its last value"),
    "spark.sql.extensions": (
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "snapshots are expired by Iceberg's procedures",
    ),
}
# By what they begin with: `lakehouse` would be another catalog.
NOT_TAKEN: Mapping[str, str] = {
    f"{CATALOG}.": "Spark and the ledger need the same catalog; what is true for both goes into `catalog.properties`",
    "spark.wap.": "where rows are staged is the ledger's business",
    "spark.sql.legacy.": "it may change what a value means",
    "spark.redaction.": "secrets would be shown",
    "spark.sql.redaction.": "secrets would be shown",
}


def checked(options: Mapping[str, str]) -> Mapping[str, str]:
    for name, value in options.items():
        # Spark's launcher reads `key=value`: a key with that sign in it would be another setting.
        if not re.fullmatch(r"[\w.$/:*-]+", name):
            raise ValueError(f"should have no key such as {name[:60]!r}: keys are letters, digits and . _ - $ / : *")
        if why := next((why for start, why in NOT_TAKEN.items() if f"{name}.".startswith(start)), None):
            raise ValueError(f"should be without {name}: {why}")
        needed, why = RELIED_ON.get(name, (value, ""))
        # The extensions are a list, which the needed one is a part of.
        parts = value.split(",") if name == "spark.sql.extensions" else [value]
        if needed.casefold() not in (part.strip().casefold() for part in parts):
            raise ValueError(f"should be without {name}, which is {needed} here: {why}")
    return options
