"""Where records come from. A new source is a file here and a line in this table."""

SOURCES = {"kafka": "lakehouse_ingest.sources.kafka:Kafka"}
