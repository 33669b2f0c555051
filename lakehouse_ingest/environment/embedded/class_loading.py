"""What an embedded server does while Java notes its classes: see `class_archive`."""

import json
import os
import tempfile
from collections.abc import Sequence
from http.client import HTTPConnection
from pathlib import Path

from confluent_kafka import Consumer, Producer

from lakehouse_ingest.environment.embedded.broker import EmbeddedBroker
from lakehouse_ingest.environment.embedded.catalog import EmbeddedCatalog
from lakehouse_ingest.environment.jars import jars_folder_from

ANSWER_S = 30.0
SCHEMA = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "n", "type": "long", "required": False}]}


def warm_server(kind: str, java_options: Sequence[str], patience_s: float) -> None:
    """Starts it, uses it, and waits until its JVM has ended."""
    jars = jars_folder_from(os.environ)
    with tempfile.TemporaryDirectory() as scratch:
        server = {"broker": EmbeddedBroker, "catalog": EmbeddedCatalog}[kind](Path(scratch), 0, jars=jars)
        server.java_options = java_options
        try:
            address = server.start()
            if isinstance(server, EmbeddedCatalog):
                _make_a_table(address, server.token_of(address))
            else:
                _carry_a_record(address)
        finally:
            server.stop(patience_s)


def _carry_a_record(brokers: str) -> None:
    producer = Producer({"bootstrap.servers": brokers})
    producer.produce("classes", b"{}")
    producer.flush(ANSWER_S)
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": "classes", "auto.offset.reset": "earliest"})
    consumer.subscribe(["classes"])
    if consumer.consume(1, ANSWER_S):
        consumer.commit(asynchronous=False)
    consumer.close()


def _make_a_table(uri: str, token: str) -> None:
    table = "/v1/namespaces/classes/tables"
    changes = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"classes": "loaded"}}]}
    connection = HTTPConnection(uri.removeprefix("http://"), timeout=ANSWER_S)
    for path, said in (
        ("/v1/namespaces", {"namespace": ["classes"]}),
        (table, {"name": "t", "schema": SCHEMA}),
        (f"{table}/t", changes),
        (f"{table}/t", None),
    ):
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        connection.request("POST" if said else "GET", path, json.dumps(said) if said else None, headers)
        connection.getresponse().read()
    connection.close()
