"""A question to a broker that nobody waits for any more, in a process of its own: it could end the whole of it.

python -m tests.services.abandoned_question 127.0.0.1:1
"""

import gc
import sys
from threading import Event

from confluent_kafka import TopicCollection

from lakehouse_ingest.settings import SourceSettings
from lakehouse_ingest.stages.sources.kafka import source as kafka
from lakehouse_ingest.stages.sources.kafka.source import Kafka

answered = Event()


def collect(_: object) -> None:
    """In the thread of the client that was asked."""
    gc.collect()
    answered.set()


def abandon(address: str) -> None:
    """In a circle, as the frames of an error lead from the question to the source and back."""
    source = Kafka(SourceSettings(brokers=address), ["sensors"])
    answers = source._admin.describe_topics(TopicCollection(["sensors"]), request_timeout=1.0)
    answers["sensors"].add_done_callback(collect)
    circle: list[object] = [source]
    circle.append(circle)


if __name__ == "__main__":
    gc.disable()
    abandon(*sys.argv[1:])
    if not answered.wait(30):
        sys.exit("nobody collected anything")
    left = len(kafka._retired)
    following = Kafka(SourceSettings(brokers=sys.argv[1]), ["sensors"])
    print(f"{left} left to the next source, and {len(kafka._retired)} by it")
    del following
