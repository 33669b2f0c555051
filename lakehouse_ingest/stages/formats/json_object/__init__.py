"""JSON: each record is one JSON object. `reference` says what a record means, `fast` reads many of them at once.

NaN and Infinity are numbers, because Python writes them. If a key comes twice, the last value counts. Keys that differ
by case are two keys.
"""

from lakehouse_ingest.stages.formats.json_object.fast import columns
from lakehouse_ingest.stages.formats.json_object.one_field import field
from lakehouse_ingest.stages.formats.json_object.reference import tree

__all__ = ["columns", "field", "tree"]
