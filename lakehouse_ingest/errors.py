"""Every error that leaves a stage, by who must act.

    LakehouseError
    ├── SettingsRefused     the person who wrote the settings
    ├── NeedsOperator       a person who knows what happened outside: the ledger asks, nothing is guessed
    │   ├── LedgerUnclear   a table's newest marker can't be found
    │   ├── SourceChanged   a topic was made anew, went back, or forgot records that we have not read
    │   ├── TableChanged    a table was replaced or laid out otherwise than the settings say
    │   ├── BadRecord       `on_error = "raise"` asked to stop at a record that can't land
    │   └── Superseded      a newer start of the same pipeline has taken over
    └── TryAgain            plumbing that may come back: waited for with back-off, then given up

A bad record is never an error: it is a value in the `fault` column.

What is done about a failure follows from its type, and is one of four:

    retry       TryAgain, and what Spark, py4j and sockets raise unless the source knows better: `Stream.run` begins
                again from the tables, waits longer each time, and gives up after `retry.limit`
    reconcile   a commit without a certain answer, or refused because another came first (`catalog.OutcomeUnknown`,
                `catalog.Conflict`): looked up, and staged again from the same files; what cannot be told so is told
                by the tables to the next start: retry
    set aside   a record's own fault, which is a `Reason`: to the dead letters, and the batch goes on
    stop        SettingsRefused, NeedsOperator: nothing more is written, and the sentence says what settles it
"""

from lakehouse_ingest.printable import printable


class LakehouseError(Exception):
    """One sentence for a person, saying what was found and what to do."""

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

LONGEST = 200  # characters of a sentence that a person reads at a glance


def fitted(sentence: str, longest: int = LONGEST) -> str:
    """On one line; what is too long is cut in the middle: what to do stands behind the last semicolon, and stays."""
    sentence = printable(sentence)
    if len(sentence) <= longest:
        return sentence
    head, mark, advice = sentence.rpartition("; ")
    room = longest - len(mark) - len(advice) - 1
    return f"{head[:room]}…{mark}{advice}" if mark and room > longest / 3 else f"{sentence[: longest - 1]}…"
