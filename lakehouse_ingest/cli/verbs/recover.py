"""`lakehouse-ingest recover`: what keeps a pipeline from starting, what can be done about it, and the doing of it.

Nothing is changed without a choice. A choice is written into the batch record as a mark of the next generation, from
which every start goes on; a pipeline that still runs is ended by it like by a newer start.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.text import Text

from lakehouse_ingest.environment.terminal import Terminal, say
from lakehouse_ingest.errors import SettingsRefused, fitted
from lakehouse_ingest.ledger import marks as ledger
from lakehouse_ingest.ledger.marks import Head
from lakehouse_ingest.records import Choice, SourceIdentity
from lakehouse_ingest.resume import blockers, shared_partitions
from lakehouse_ingest.resume import decision as decided
from lakehouse_ingest.resume.blockers import Answer, Question, SourceNow
from lakehouse_ingest.resume.decision import Decision, Kind
from lakehouse_ingest.resume.start_offsets import complete
from lakehouse_ingest.settings import Settings, StreamSettings
from lakehouse_ingest.stages import sources
from lakehouse_ingest.tables import Lake, Place, Registered, newest_generation
from lakehouse_ingest.tables.catalog_address import catalog_at
from lakehouse_ingest.tables.clients import connection_of

UNANSWERED = 3


@dataclass
class Stood:
    """Where one stream stands, and what a start of it would ask."""

    identity: str
    lake: Lake
    record: str  # the batch record's name
    places: Sequence[Place] = ()  # on it, and then on the tables; nowhere if nothing has ever been landed
    registered: dict[str, Registered] = field(default_factory=dict)
    heads: dict[str, Head] = field(default_factory=dict)
    blockers: list[Question] = field(default_factory=list)

    def asked(self, only: str | None) -> list[Question]:
        """All of them, or those about a topic, or else about a table, of the namespace where it names none."""
        if only is None:
            return self.blockers
        table = only if "." in only else f"{self.record.rpartition('.')[0]}.{only}"
        by_about = {name: [each for each in self.blockers if each.about == name] for name in (table, only)}
        return by_about[only] or by_about[table]

    @property
    def generation(self) -> int:
        return newest_generation(self.places)


def recover(
    settings: Settings,
    *,
    choice: Choice | None = None,
    only: str | None = None,
    jars: Path | None = None,
    as_json: bool = False,
) -> int:
    """The exit code: whether something is still to be answered."""
    console = Terminal(soft_wrap=True)
    with catalog_at(settings, jars) as uri:
        found = [_looked(settings, stream, uri) for stream in settings.streams]
        _refuse_others(found, only)
        chosen = [(each, _chosen(each, choice, only)) for each in found] if choice else []
        for each, answers in chosen:
            if answers:
                _carry_out(each, answers)
    left = sum(len(each.blockers) for each in found) - sum(len(answers) for _, answers in chosen)
    if as_json:
        say(json.dumps([_plain(each, dict(_answered(chosen, each))) for each in found], indent=2))
    else:
        for each in found:
            _show(console, each, dict(_answered(chosen, each)))
        if left and not choice:
            console.print(
                "\nNothing has been changed. --choose one of these, or set right what is wrong and start again."
            )
    return UNANSWERED if left else 0


# -- what a start would ask -------------------------------------------------------------------------------


def _looked(settings: Settings, stream: StreamSettings, uri: str) -> Stood:
    identity, namespace = settings.identity_of(stream), settings.catalog.namespace
    lake = Lake(connection_of(settings.catalog, settings.s3, uri), identity, settings.catalog.publish)
    stood = Stood(identity, lake, f"{namespace}.{settings.ledger.batch_table}")
    record = lake.find(stood.record)
    if record is None:
        return stood
    stood.registered, stood.heads = lake.registered(stood.record), lake.heads(stood.record)
    there = [state for name in stood.registered if (state := lake.find(name))]
    stood.places = [lake.seen(state) for state in (record, *there)]
    first, *others = [place.within(stood.generation) for place in stood.places]
    source = sources.of_stream(settings.source, stream)
    now = SourceNow(source.identity(), *source.bounds(), source.ends())
    stood.blockers = [
        *blockers.of_source(
            first, others, now, stood.heads, shared_partitions.stated(identity, first, settings.source)
        ),
        *blockers.of_tables(stood.registered, stood.heads, {each.table: each for each in stood.places[1:]}, now),
    ]
    return stood


def _refuse_others(found: Sequence[Stood], only: str | None) -> None:
    abouts = sorted({question.about for each in found for question in each.blockers})
    if abouts and not any(each.asked(only) for each in found):
        raise SettingsRefused(fitted(f"--only {only}: nothing is asked about that, but about {', '.join(abouts)}"))


def _chosen(stood: Stood, choice: Choice, only: str | None) -> list[tuple[Question, Answer]]:
    asked = stood.asked(only)
    for each in asked:
        if choice not in each.choices:
            raise SettingsRefused(
                fitted(
                    f"--choose {choice} does not answer this: {_said(each)}; choose {' or '.join(each.choices)}, with"
                    f" --only {each.about}"
                )
            )
    return [(each, each.choices[choice]) for each in asked]


# -- the doing of it --------------------------------------------------------------------------------------


def _carry_out(stood: Stood, answers: Sequence[tuple[Question, Answer]]) -> None:
    current = [place.within(stood.generation) for place in stood.places]
    done = complete(current[0], current[1:])
    marks = [place.mark for place in current if place.mark]
    offsets, source = dict(done), SourceIdentity(next((m.source.cluster for m in marks), ""), ledger.ids_of(marks))
    skipped: dict[tuple[str, int], tuple[int, int]] = {}
    for _, answer in answers:
        offsets = {at: offset for at, offset in offsets.items() if at[0] not in answer.without}
        if not answer.topics and not answer.tables:
            skipped |= {at: (done.get(at, 0), offset) for at, offset in answer.offsets.items()}
        offsets |= answer.offsets
        source = SourceIdentity(answer.cluster or source.cluster, {**source.topics, **answer.topics})
    taken = {name for _, answer in answers for name in answer.tables}
    decision = Decision(
        kind=Kind.RECOVER,
        pipeline=stood.identity,
        generation=stood.generation + 1,
        source=source,
        offsets=offsets,
        note="; ".join(f"{question.error} -> {answer.says}" for question, answer in answers),
        spans=skipped,
        tables={name: _whatever_is_there(stood.registered[name]) for name in taken},
        heads={name: head for name, head in stood.heads.items() if name not in taken},
        settings=marks[0].settings if marks else "",
    )
    decided.carry_out(stood.lake, stood.record, [each.table for each in stood.places[1:]], decision)


def _whatever_is_there(before: Registered) -> Registered:
    return Registered("", before.topic, before.type)


# -- what is said -----------------------------------------------------------------------------------------


def _answered(chosen: Sequence[tuple[Stood, list[tuple[Question, Answer]]]], stood: Stood) -> list[tuple[str, Answer]]:
    return [(str(question.error), answer) for each, answers in chosen if each is stood for question, answer in answers]


def _show(console: Terminal, stood: Stood, answered: dict[str, Answer]) -> None:
    console.print(Text(stood.identity, style="bold"), end=": ")
    if not stood.places:
        console.print("nothing has been landed yet, so there is nothing to recover.")
    elif not stood.blockers:
        console.print("nothing keeps it from starting.")
    else:
        console.print(
            f"{len(stood.blockers) - len(answered)} of {len(stood.blockers)} questions keep it from starting."
        )
    for number, question in enumerate(stood.blockers, 1):
        console.print(f"\n{number}. {_said(question)}.", style="yellow")
        if answer := answered.get(str(question.error)):
            console.print(f"   done: {answer.says}.", style="green")
            continue
        for choice, possible in question.choices.items():
            console.print(f"   --choose {choice:7} {possible.says}")


def _said(question: Question) -> str:
    return str(question.error).removesuffix(blockers.ADVICE)


def _plain(stood: Stood, answered: dict[str, Answer]) -> dict[str, Any]:
    return {
        "pipeline": stood.identity,
        "generation": stood.generation,
        "questions": [
            {
                "about": question.about,
                "found": str(question.error),
                "choices": {str(choice): answer.says for choice, answer in question.choices.items()},
                "done": answered[str(question.error)].says if str(question.error) in answered else None,
            }
            for question in stood.blockers
        ],
    }
