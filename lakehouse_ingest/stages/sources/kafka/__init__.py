"""Kafka topics, by librdkafka: `source` is asked by the pipeline's process, `reader` reads in the tasks."""
