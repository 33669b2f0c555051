"""Servers for one machine: a REST catalog and a Kafka broker, each a child process that cannot outlive us."""
