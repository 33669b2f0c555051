"""How a record's bytes become fields. A new format is a file here and a line in this table."""

FORMATS = {"json": "lakehouse_ingest.formats.json_object"}
