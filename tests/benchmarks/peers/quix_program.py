"""The program of a quixstreams user, in an environment that has quixstreams: python quix_program.py settings.json

The sink reaches its store by a package `quixportal`, which PyPI does not have. Here its three names stand for a folder.
"""

import json
import sys
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

Provider = Enum("Provider", ["S3", "MINIO", "S3_COMPATIBLE", "GCP", "AZURE", "LOCAL"])


def stand_in(folder: str) -> None:
    """What the sink imports of `quixportal`."""
    local, within = import_module("fsspec.implementations.local"), import_module("fsspec.implementations.dirfs")

    def get_filesystem(base_path: str = "") -> Any:
        return within.DirFileSystem(str(Path(folder, base_path)), local.LocalFileSystem(auto_mkdir=True))

    config = SimpleNamespace(provider=Provider.LOCAL, local_storage=SimpleNamespace(directory_path=folder))
    names: dict[str, dict[str, Any]] = {
        "quixportal": {"get_filesystem": get_filesystem},
        "quixportal.storage": {},
        "quixportal.storage.config": {"BlobStorageProvider": Provider, "load_config_from_env": lambda: config},
    }
    for name, held in names.items():
        sys.modules[name] = ModuleType(name)
        vars(sys.modules[name]).update(held)


def main() -> None:
    settings = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    stand_in(settings["lake"])
    quixstreams = import_module("quixstreams")
    sink = import_module("quixstreams.sinks.core.quix_ts_datalake_sink").QuixTSDataLakeSink(**settings["sink"])
    application = quixstreams.Application(**settings["application"])
    topic = application.topic(settings["topic"], value_deserializer="json")
    application.dataframe(topic).sink(sink)
    application.run(count=settings["count"])


if __name__ == "__main__":
    main()
