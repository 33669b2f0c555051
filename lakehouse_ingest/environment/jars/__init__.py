"""The locked jars: what Spark, the embedded catalog and the embedded broker are made of.

One Ivy file a kind holds exact versions; `checksums.txt` holds what each file must be. They are fetched once
into a cache of our own and given to Java as files: resolving at each start costs half a minute and trusts the
network.
"""

from lakehouse_ingest.environment.jars.fetch import (
    KINDS,
    Step,
    cache_folder,
    ensure,
    jars_folder_from,
    present,
    remove_cache,
)
from lakehouse_ingest.environment.jars.trust import mistrust, refuse_what_others_may_write

__all__ = [
    "KINDS",
    "Step",
    "cache_folder",
    "ensure",
    "jars_folder_from",
    "mistrust",
    "present",
    "refuse_what_others_may_write",
    "remove_cache",
]
