"""Every error that leaves a stage, by who must act.

    LakehouseError
    ├── SettingsRefused     the person who wrote the settings
    ├── NeedsOperator       a person who knows what happened outside; the pipeline never guesses
    │   ├── LedgerUnclear   the newest mark of a table can't be found or read
    │   ├── SourceChanged   a topic was recreated, went back, or lost records that we have not read
    │   ├── TableChanged    a table was replaced, or differs from what the settings say
    │   ├── BadRecord       `on_error = "raise"` asked to stop at a record with a fault
    │   └── Superseded      a newer start of the same pipeline has taken over
    └── TryAgain            nobody yet: a dependency may come back, so we retry with back-off, then give up

A bad record is never an error: it is a value in the `fault` column.

The type of a failure decides what happens next. There are four cases:

    retry        TryAgain, and whatever Spark, py4j, sockets and disks raise, unless the source recognises it.
                 `Stream.run` starts again from the tables, waits longer each time, and gives up after `retry.limit`.
    reconcile    A commit whose outcome is unknown, or that another commit preceded (`catalog.OutcomeUnknown`,
                 `catalog.Conflict`). We look the commit up, and repeat it with the same files. If that can't settle
                 it, we retry: the next start reads the outcome from the tables.
    dead-letter  A fault of a record, which is a `Reason`. The record goes to the dead-letter table, the batch goes on.
    stop         SettingsRefused, NeedsOperator: nothing more is written. The message says what to do.
"""

from lakehouse_ingest.printable import printable


class LakehouseError(Exception):
    """The message is for a person: what was found, why, and what to do."""

    exit_code = 1


class SettingsRefused(LakehouseError):
    exit_code = 2


class NeedsOperator(LakehouseError):
    exit_code = 3


class LedgerUnclear(NeedsOperator): ...


class SourceChanged(NeedsOperator): ...


class TableChanged(NeedsOperator): ...


class BadRecord(NeedsOperator): ...


class Superseded(NeedsOperator): ...


class TryAgain(LakehouseError):
    exit_code = 4


# What an exit code of the process means, for people and for scripts.
EXIT_CODES = {
    0: "done, or stopped on request",
    1: "internal error",
    2: "the settings are refused",
    3: "a person has to decide, and the message says what",
    4: "a broker, catalog or store stayed away",
    5: "`verify` found a loss, a duplicate or another contradiction",
    6: "`verify` could not decide about some offsets, and found nothing wrong with the others",
    7: "`plan` would change the catalog",
    130: "interrupted by Ctrl-C before there was anything to end in order",
}

LONGEST = 200  # characters that a person reads at a glance


def fitted(sentence: str, longest: int = LONGEST) -> str:
    """Put a message on one line, and shorten it if it is too long.

    The text after the last semicolon says what to do, so the cut is made before it.
    """
    sentence = printable(sentence)
    if len(sentence) <= longest:
        return sentence
    head, mark, advice = sentence.rpartition("; ")
    room = longest - len(mark) - len(advice) - 1
    return f"{head[:room]}…{mark}{advice}" if mark and room > longest / 3 else f"{sentence[: longest - 1]}…"
