"""`lakehouse-ingest catalog serve`: the embedded catalog alone, for readers while nothing is ingested."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from shlex import quote
from types import FrameType

from lakehouse_ingest.environment.embedded.catalog import EmbeddedCatalog
from lakehouse_ingest.environment.terminal import Terminal
from lakehouse_ingest.errors import TryAgain

NEXT = """\
The catalog of {warehouse} listens at {uri} (process {pid}, log {log}).

  Python   pyiceberg.catalog.load_catalog("lake", type="rest", uri="{uri}", token="{token}").list_namespaces()
  shell    PYICEBERG_CATALOG__DEFAULT__TOKEN={token} pyiceberg --uri {uri} list
  DuckDB   INSTALL iceberg; LOAD iceberg; ATTACH 'lake' AS lake (TYPE iceberg, ENDPOINT '{uri}', TOKEN '{token}', \
ACCESS_DELEGATION_MODE 'none'); SHOW ALL TABLES;
  Spark    --conf spark.sql.catalog.lake=org.apache.iceberg.spark.SparkCatalog \
--conf spark.sql.catalog.lake.type=rest --conf spark.sql.catalog.lake.uri={uri}
           and in the session, before the first query:
           SET `spark.sql.catalog.lake.header.Authorization` = Bearer {token};
  ingest   lakehouse-ingest run --catalog-uri {uri} --warehouse {quoted} --topics …

Anyone with the token can read and change all tables. It stays the same from start to start, and is kept in {note}.
Ctrl-C ends it."""


def serve(catalog: EmbeddedCatalog) -> None:
    """Serves until SIGINT or SIGTERM; raises when the catalog ends by itself."""
    console = Terminal(soft_wrap=True)
    uri = catalog.start()
    with _asked_to_stop() as asked:
        try:
            said = NEXT.format(
                warehouse=catalog.warehouse,
                quoted=quote(str(catalog.warehouse)),
                uri=uri,
                token=catalog.token_of(uri),
                note=catalog.claim.note,
                pid=os.getpid(),
                log=catalog.log,
            )
            console.print(said)
            while not asked(0.5):
                if not catalog.running:
                    raise TryAgain(f"The catalog's Java process ended by itself: its log is {catalog.log}.")
        finally:
            catalog.stop()
    console.print("The catalog has stopped.")


@contextmanager
def _asked_to_stop() -> Iterator[Callable[[float], bool]]:
    """SIGINT and SIGTERM do nothing but end the wait that is handed out."""
    # A queue of this kind may be filled by a handler at any moment; an Event can lock up with its own waiter.
    asked: SimpleQueue[int] = SimpleQueue()

    def ask(number: int, _frame: FrameType | None) -> None:
        asked.put(number)

    def wait(seconds: float) -> bool:
        try:
            return asked.get(timeout=seconds) is not None
        except Empty:
            return False

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield wait
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
