"""The process that Spark forks its Python workers from. It imports everything first, so that no worker has to.

Two workers that import by themselves take 0.8 seconds of the processor and 40 MB each.
"""

import gc
from zipimport import zipimporter

# What is imported stays. To look for garbage among it meanwhile takes a tenth of the time.
gc.disable()

import pyarrow as pa  # noqa: E402
from pyspark.daemon import manager  # noqa: E402


def _import_all() -> None:
    import lakehouse_ingest.pipeline.task  # noqa: PLC0415
    import lakehouse_ingest.stages.formats.json_object  # noqa: PLC0415 - the usual format and source
    import lakehouse_ingest.stages.sources.kafka.reader  # noqa: F401, PLC0415

    pa.set_cpu_count(1)  # Spark runs as many workers as there are cores
    pa.set_io_thread_count(1)
    # Spark asks for it before each task. Until Python 3.13 it reads the directories of Spark's zip files: 50 ms.
    zipimporter.invalidate_caches = _keep  # type: ignore[assignment, method-assign]
    gc.collect()
    gc.freeze()  # the workers share this memory as long as nobody writes to it
    gc.enable()


def _keep(_: zipimporter) -> None:
    """Nobody changes these files while Spark runs."""


if __name__ == "__main__":
    _import_all()
    manager()  # type: ignore[no-untyped-call]
