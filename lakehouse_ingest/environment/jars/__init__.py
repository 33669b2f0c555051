"""The locked jars: what Spark, the embedded catalog and the embedded broker are made of.

`checksums.txt` locks the version and the checksum of each. They are downloaded once into a cache of our own and given
to Java as files: to resolve versions at each start would cost half a minute and trust the network.
"""

from lakehouse_ingest.environment.jars.cache import (
    cache_folder,
    ensure,
    jars_folder_from,
    place_of,
    present,
    remove_cache,
)
from lakehouse_ingest.environment.jars.lock import ALL_KINDS, KINDS
from lakehouse_ingest.environment.jars.trust import mistrust, refuse_what_others_may_write

__all__ = [
    "ALL_KINDS",
    "KINDS",
    "cache_folder",
    "ensure",
    "jars_folder_from",
    "mistrust",
    "place_of",
    "present",
    "refuse_what_others_may_write",
    "remove_cache",
]
