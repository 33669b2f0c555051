"""Recovering: what keeps a stream from starting, what each choice would do about it, and doing what was chosen.

A choice is written to the batch log as a mark of the next generation, and every later start goes on from there. A
pipeline that still runs is fenced by that mark, as by a newer start.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from lakehouse_ingest.errors import SettingsRefused, fitted
from lakehouse_ingest.ledger import marks as ledger
from lakehouse_ingest.ledger.marks import Head
from lakehouse_ingest.operations.proposal import Proposal
from lakehouse_ingest.records import Choice, SourceIdentity
from lakehouse_ingest.resume import blockers, decision, shared_partitions
from lakehouse_ingest.resume.blockers import Blocker, Resolution, SourceNow
from lakehouse_ingest.resume.decision import Decision, DecisionKind
from lakehouse_ingest.resume.start_offsets import complete
from lakehouse_ingest.settings import Settings, StreamSettings
from lakehouse_ingest.stages import sources
from lakehouse_ingest.tables import PipelineTables, Position, Registered, newest_generation
from lakehouse_ingest.tables.pipeline_tables import tables_of

HOW = "Give --choose with one of these, or fix the cause and start again."


@dataclass(frozen=True)
class Recovery:
    """One stream: how far it has come, and what keeps it from starting."""

    identity: str
    lake: PipelineTables
    batch_log: str  # its name
    places: Sequence[Position] = ()  # on the batch log and then on the tables; none if nothing was ever committed
    registered: Mapping[str, Registered] = field(default_factory=dict)
    heads: Mapping[str, Head] = field(default_factory=dict)
    blockers: Sequence[Blocker] = ()
    done: Mapping[str, Resolution] = field(default_factory=dict)  # by what was found

    def about(self, only: str | None) -> Sequence[Blocker]:
        """All blockers, or those about one topic, or about one table. The table's name may lack the namespace."""
        if only is None:
            return self.blockers
        table = only if "." in only else f"{self.batch_log.rpartition('.')[0]}.{only}"
        by_about = {name: [each for each in self.blockers if each.about == name] for name in (table, only)}
        return by_about[only] or by_about[table]

    @property
    def generation(self) -> int:
        return newest_generation(self.places)

    @property
    def left(self) -> int:
        return len(self.blockers) - len(self.done)


Answered = Sequence[tuple[Blocker, Resolution]]


def look(settings: Settings, uri: str, choice: Choice | None, only: str | None) -> Proposal[Sequence[Recovery]]:
    """`uri`: of the catalog; `only`: the topic or table that the choice is for."""
    found = [_recovery_of(settings, stream, uri) for stream in settings.streams]
    _refuse_others(found, only)
    chosen = [(each, _answers(each, choice, only) if choice else []) for each in found]

    def apply() -> Proposal[Sequence[Recovery]]:
        return _proposal([_applied(each, answers) if answers else each for each, answers in chosen])

    return replace(_proposal(found), apply=apply if any(answers for _, answers in chosen) else None)


def _proposal(found: Sequence[Recovery]) -> Proposal[Sequence[Recovery]]:
    return Proposal(found, pending=any(each.left for each in found), says=HOW)


# -- what keeps a stream from starting --------------------------------------------------------------------


def _recovery_of(settings: Settings, stream: StreamSettings, uri: str) -> Recovery:
    identity = settings.identity_of(stream)
    lake, name = tables_of(settings, uri, stream), settings.batch_log
    batch_log = lake.find(name)
    if batch_log is None:
        return Recovery(identity, lake, name)
    registered, heads = lake.registered(name), lake.heads(name)
    there = [state for table in registered if (state := lake.find(table))]
    places = [lake.seen(state) for state in (batch_log, *there)]
    first, *others = [place.within(newest_generation(places)) for place in places]
    source = sources.of_stream(settings.source, stream)
    now = SourceNow(source.identity(), *source.bounds(), source.ends())
    stated = shared_partitions.stated(identity, first, settings.source)
    found = [
        *blockers.of_source(first, others, now, heads, stated),
        *blockers.of_tables(registered, heads, {each.table: each for each in places[1:]}, now),
    ]
    return Recovery(identity, lake, name, places, registered, heads, found)


def _refuse_others(found: Sequence[Recovery], only: str | None) -> None:
    abouts = sorted({blocker.about for each in found for blocker in each.blockers})
    if abouts and not any(each.about(only) for each in found):
        raise SettingsRefused(fitted(f"--only {only}: nothing is asked about that, but about {', '.join(abouts)}"))


def _answers(recovery: Recovery, choice: Choice, only: str | None) -> Answered:
    asked = recovery.about(only)
    for each in asked:
        if choice not in each.choices:
            raise SettingsRefused(
                fitted(
                    f"--choose {choice} does not answer this: {found_of(each)}; choose {' or '.join(each.choices)},"
                    f" with --only {each.about}"
                )
            )
    return [(each, each.choices[choice]) for each in asked]


def found_of(blocker: Blocker) -> str:
    """What was found, without the advice that a start gives: this is where it leads to."""
    return str(blocker.error).removesuffix(blockers.ADVICE)


# -- doing what was chosen --------------------------------------------------------------------------------


def _applied(recovery: Recovery, answers: Answered) -> Recovery:
    others = [each.table for each in recovery.places[1:]]
    decision.carry_out(recovery.lake, recovery.batch_log, others, _decision(recovery, answers))
    return replace(recovery, done={str(blocker.error): answer for blocker, answer in answers})


def _decision(recovery: Recovery, answers: Answered) -> Decision:
    current = [place.within(recovery.generation) for place in recovery.places]
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
    return Decision(
        kind=DecisionKind.RECOVER,
        pipeline=recovery.identity,
        generation=recovery.generation + 1,
        source=source,
        offsets=offsets,
        note="; ".join(f"{blocker.error} -> {answer.says}" for blocker, answer in answers),
        spans=skipped,
        tables={name: _as_it_is(recovery.registered[name]) for name in taken},
        heads={name: head for name, head in recovery.heads.items() if name not in taken},
        settings=marks[0].settings if marks else "",
    )


def _as_it_is(before: Registered) -> Registered:
    """Without an id, a table is taken whatever it is."""
    return Registered("", before.topic, before.type)
