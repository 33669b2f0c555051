"""`lakehouse-ingest run`: settings to a running pipeline, until a signal or, when draining, until all has landed."""

from collections.abc import Callable

from lakehouse_ingest.cli.progress_line import progress
from lakehouse_ingest.environment.signals import on_hangup, stopping, terminable
from lakehouse_ingest.observe.events import Stopped, VariableNotRead
from lakehouse_ingest.observe.watch import Watch
from lakehouse_ingest.pipeline.assembly import opened
from lakehouse_ingest.pipeline.options import RunOptions
from lakehouse_ingest.settings import Settings, foreign


def run(settings: Settings, options: RunOptions, *, reread: Callable[[], Settings] | None = None) -> None:
    """`reread`: the same settings, from where they stand; at a SIGHUP the level of the log is taken from there."""
    watches: list[Watch] = []  # before there is one, a SIGHUP does nothing

    def again() -> None:
        for watching in watches:
            watching.reload_log_level(settings, reread or (lambda: settings))

    with (
        on_hangup(again),
        terminable(),  # until there is a pipeline to stop: Spark alone takes ten seconds to start
        opened(settings, options) as running,
        progress(running.watch, settings.name),
        stopping(running.stop),
    ):
        watches.append(running.watch)
        for variable, setting in foreign().items():
            running.watch.emit(VariableNotRead(variable=variable, ours=setting))
        running.pipeline.run()
        running.watch.emit(Stopped(batches=running.pipeline.landed))
