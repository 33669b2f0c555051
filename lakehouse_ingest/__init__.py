"""Events from Kafka into Apache Iceberg tables, exactly once, behind an Iceberg REST catalog."""
