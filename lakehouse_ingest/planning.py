"""What a table should look like: from the settings, from the table itself, or from the first records."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse_ingest.columns import (
    ELEMENT,
    EVENT_TIME,
    HINTED,
    MEETS,
    NO_NAME,
    SOURCE_TYPE,
    TAKEN,
    TOO_MANY,
    TOO_MANY_NEW,
    VALUE,
    ColumnPlan,
    Refused,
    are_names,
    declared,
    from_table,
    in_common,
    is_written,
    named,
    spark_type,
    to_iceberg,
    width,
)
from lakehouse_ingest.contracts import aside_of, contract_of
from lakehouse_ingest.errors import SettingsRefused, TableChanged
from lakehouse_ingest.formats import Format, infer
from lakehouse_ingest.ledger_keys import EVENT_TIME_FIELD, EVENT_TIME_UNIT, GUESSED, PART_OF_TIME, RESCUED_DOC
from lakehouse_ingest.records import FAULT, RESCUED, SOURCE
from lakehouse_ingest.settings import TableSettings
from lakehouse_ingest.shaping import TIME_PARTS, TablePlan, unit_of
from lakehouse_ingest.tables import (
    FOLLOW,
    Add,
    Column,
    Contract,
    Partition,
    Rule,
    Sort,
    TableSpec,
    TableState,
    bare,
    same_partitions,
)
from lakehouse_ingest.writers.iceberg import FileOptions

# Without `event_time` in the settings the first of these fields is it; else the record's own timestamp.
USUAL_EVENT_TIMES = (EVENT_TIME, "ts_ms")
QUOTED = r'"(?:[^"]|"")*"'

Fields = Sequence[tuple[str, T.DataType]]
Where = tuple[str | None, ...]  # the keys that lead to an object; None: any element of a list or value of a map


@dataclass(frozen=True)
class Planned:
    """A plan, and whether it may make a table: not while the records seen so far tell too little."""

    plan: TablePlan
    settled: bool = True
    refused: tuple[Refused, ...] = ()
    why: str = "no field or no event time has been seen in these records yet"  # not settled
    beyond: bool = True  # these records may have fields that are in no column


@dataclass(frozen=True)
class Growth:
    """What a batch brings that its table has no column for."""

    columns: list[tuple[str, Column]]  # each with the path of what it is added to; "" is the table
    refused: tuple[Refused, ...]
    whence: tuple[tuple[Where, str], ...] = ()  # of each column the field: the keys that lead to it, and its name


class New(NamedTuple):
    """A field that is new in an object of a column."""

    where: Where
    path: tuple[str, ...]  # in the table's words, from the column on, to that object
    siblings: Sequence[str]  # what this has already
    name: str
    kind: T.DataType


def plan_from_settings(table: str, settings: TableSettings) -> tuple[ColumnPlan, ...]:
    columns = tuple(declared(each.name, each.type, required=each.required) for each in settings.columns)
    names = [column.name for column in columns]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise SettingsRefused(f"the column {twice} is declared twice for table {table}")
    if ours := next((name for name in names if name in TAKEN), None):
        raise SettingsRefused(f"the column name {ours} is taken: it is one of ours ({', '.join(TAKEN)})")
    if columns and settings.event_time and settings.event_time not in names:
        raise SettingsRefused(
            f"`event_time` names {settings.event_time}, which is not among the columns of table {table}"
        )
    if EVENT_TIME in names and settings.event_time not in (None, EVENT_TIME):
        raise SettingsRefused(f"the column name {EVENT_TIME} is taken by the time found in {settings.event_time}")
    if columns and settings.hints:
        raise SettingsRefused(f"`hints` are for columns taken from the data, and those of table {table} are declared")
    for field, kind in settings.hints.items():
        declared(field, kind, required=False)
    if columns:
        _check_layout_names(table, settings, {*names, EVENT_TIME, SOURCE, *derived_of(settings)})
    _refuse_own(table, settings, names)
    return columns


def plan_from_table(state: TableState, settings: TableSettings) -> TablePlan | None:
    """None when the table can't tell how its event times were read; then the records must."""
    declared_columns = plan_from_settings(state.name, settings)
    field = state.properties.get(EVENT_TIME_FIELD)
    if field is None:
        field = _event_time_field(settings, [column.name for column in state.columns]) or ""
    unit = state.properties.get(EVENT_TIME_UNIT) or settings.event_time_unit
    if field and unit == "auto":
        return None
    if settings.rescues and any(each.name == RESCUED and each.type != "string" for each in state.columns):
        raise TableChanged(f"the column {RESCUED} of {state.name} is no text, and the contract needs it: rename it")
    derived = derived_of(settings)
    _check_writable(state, derived)
    found = tuple(
        from_table(column.name, bare(column.type), column.doc, required=column.required)
        for column in state.columns
        if column.name not in (SOURCE, RESCUED, *derived) and (column.name != EVENT_TIME or field == EVENT_TIME)
    )
    types = {column.name: column for column in found}
    for column in declared_columns:
        _check_type(state.name, types.get(column.name), column)
    return TablePlan(
        state.name,
        declared_columns or tuple(_as_hinted(state.name, column, settings) for column in found),
        field or None,
        unit.removeprefix(GUESSED),
        not unit.startswith(GUESSED),
        aside_of(settings),
        derived,
        state.partition_names,
    )


def _check_writable(state: TableState, derived: Collection[str]) -> None:
    for column in state.columns:
        if column.name != SOURCE and not is_written(bare(column.type)):
            raise TableChanged(
                f"the column {column.name} of {state.name} is {column.type[:60]}, which is not written from here:"
                " name another table"
            )
        if re.search(r"\brequired\s+\w", re.sub(QUOTED, "", column.type)):
            # A record without such a value could be no dead letter: it is found only when the row is written.
            raise TableChanged(
                f"the column {column.name} of {state.name} needs values within, and records may lack them: make them"
                " optional, or name another table"
            )
        if column.name in derived and column.type != "string":
            raise TableChanged(
                f"the column {column.name} of {state.name} is {column.type}, and `hive_directories` needs it as text:"
                " name another table"
            )


def plan_that_stands(state: TableState, settings: TableSettings) -> TablePlan:
    """That of a table which is there, whoever made it."""
    if (plan := plan_from_table(state, settings)) is None:
        raise SettingsRefused(
            f"the table {state.name} does not say how its event times are written: set `event_time_unit`"
        )
    return plan


def _as_hinted(table: str, there: ColumnPlan, settings: TableSettings) -> ColumnPlan:
    if there.field not in settings.hints or there.name == EVENT_TIME:
        return there
    column = declared(there.field, settings.hints[there.field], required=False)
    _check_type(table, there, column)
    return replace(column, name=there.name, required=there.required)


def _check_type(table: str, there: ColumnPlan | None, wanted: ColumnPlan) -> None:
    if there is None or there.name == EVENT_TIME:
        return
    if there.iceberg.replace(" ", "") != wanted.iceberg.replace(" ", ""):
        raise TableChanged(
            f"the column {there.name} of {table} is {there.iceberg}, the settings say {wanted.iceberg}:"
            " change the settings, or name another table"
        )


def plan_from_records(
    table: str, settings: TableSettings, form: Format, fields: Fields, rows: DataFrame, *, refuse_names: bool = False
) -> Planned:
    """From the first batch: the columns unless declared, and the unit of the event times."""
    columns, aside = plan_from_settings(table, settings), aside_of(settings)
    refused: tuple[Refused, ...] = ()
    if not columns:
        wanted = _wanted(form, fields, rows, settings)
        names = [column.field for column in wanted]
        event_time = _event_time_field(settings, names)
        if not wanted:
            return Planned(TablePlan(table, (), None, "iso", aside=aside), settled=False)
        if event_time is not None and event_time not in names:
            known = ", ".join(names[:20])
            raise SettingsRefused(
                f"`event_time` names {event_time}, and no record so far has such a field; there are {known}"
            )
        taken = (
            *derived_of(settings),
            *(() if event_time == EVENT_TIME else (EVENT_TIME,)),
            *_partition_names(settings),
        )
        room = settings.max_columns
        columns, refused = _columns(form, wanted, rows, settings, event_time, taken, room, refuse_names=refuse_names)
        refused += _beyond_hints(form, columns, fields, rows, settings)
        _refuse_own(table, settings, [column.name for column in columns])
    event_time = _event_time_field(settings, [column.field for column in columns])
    # As text, whatever it is: a column of that name becomes the time itself.
    columns = tuple(
        replace(column, iceberg="timestamptz", name=EVENT_TIME) if column.field == event_time == EVENT_TIME else column
        for column in columns
    )
    plan = TablePlan(
        table,
        columns,
        event_time,
        settings.event_time_unit,
        aside=aside,
        derived=derived_of(settings),
        partitions=_partition_names(settings),
    )
    if event_time is None or settings.event_time_unit != "auto":
        return Planned(plan, refused=refused)
    unit = unit_of(form.decode(rows, columns), event_time)
    return Planned(replace(plan, unit=unit or "ms", unit_was_told=False), settled=unit is not None, refused=refused)


def _event_time_field(settings: TableSettings, names: Sequence[str]) -> str | None:
    return settings.event_time or next((name for name in USUAL_EVENT_TIMES if name in names), None)


def spec(plan: TablePlan, settings: TableSettings) -> TableSpec:
    columns = [
        Column(each.name, each.iceberg, each.required, each.doc) for each in plan.columns if each.name != EVENT_TIME
    ]
    columns.append(Column(EVENT_TIME, "timestamptz"))
    columns += [Column(each, "string", doc=f"{each}{PART_OF_TIME}") for each in plan.derived]
    if settings.rescues:
        columns.append(Column(RESCUED, "string", doc=RESCUED_DOC))
    columns.append(Column(SOURCE, SOURCE_TYPE))
    _check_layout_names(plan.table, settings, {column.name for column in columns})
    partitions, sort = partitions_of(settings), tuple(Sort.parse(each) for each in settings.sort_by)
    plainly = {"write.object-storage.enabled": "false"} if settings.hive_directories else {}
    properties = {**FileOptions.of(settings).properties(), **plainly, **event_time_of(plan), **settings.properties}
    return TableSpec(plan.table, tuple(columns), partitions, sort, properties)


def event_time_of(plan: TablePlan) -> dict[str, str]:
    """What a table says of its event times; without it a column of ours would be taken for a field of the records."""
    return {
        EVENT_TIME_FIELD: plan.event_time or "",
        EVENT_TIME_UNIT: plan.unit if plan.unit_was_told else f"{GUESSED}{plan.unit}",
    }


def _check_layout_names(table: str, settings: TableSettings, names: Collection[str]) -> None:
    for setting, wanted in (("partition_by", partitions_of(settings)), ("sort_by", map(Sort.parse, settings.sort_by))):
        for each in wanted:
            if each.column not in names:
                raise SettingsRefused(
                    f"`{setting}` names {each.column}, which is no column of {table}: {', '.join(sorted(names)[:20])}"
                )


def partitions_of(settings: TableSettings) -> tuple[Partition, ...]:
    """With year, month, day, hour, as far as they are named, as one hidden partition of the finest of them."""
    parts = derived_of(settings) or _time_parts(settings)
    finest = {} if settings.hive_directories or not parts else {parts[0]: f"{parts[-1]}({EVENT_TIME})"}
    left_out = () if settings.hive_directories else parts[1:]
    try:
        return tuple(Partition.parse(finest.get(each, each)) for each in settings.partition_by if each not in left_out)
    except ValueError as refusal:
        raise SettingsRefused(f"`partition_by` can't be understood: {refusal}") from None


def _partition_names(settings: TableSettings) -> frozenset[str]:
    """Those that no column can have; a field that is a partition as it is shares the name of its own."""
    return frozenset(each.called for each in partitions_of(settings) if each.called != each.column)


def derived_of(settings: TableSettings) -> tuple[str, ...]:
    """The columns that hold parts of the event time, for directories in Hive's way."""
    return _time_parts(settings) if settings.hive_directories else ()


def _time_parts(settings: TableSettings) -> tuple[str, ...]:
    found = tuple(each for each in settings.partition_by if each in TIME_PARTS)
    if found != (*TIME_PARTS,)[: len(found)]:
        raise SettingsRefused(
            f"`partition_by` has {', '.join(found)}: of the event time it takes year, month, day, hour from the first"
            f" on, in this order; or write {found[-1]}({EVENT_TIME})"
        )
    return found


def _refuse_own(table: str, settings: TableSettings, names: Collection[str]) -> None:
    if own := next((each for each in settings.partition_by if each in TIME_PARTS and each in names), None):
        raise SettingsRefused(
            f"`partition_by` means the {own} of the event time, and the records of {table} have a field {own} of their"
            f" own: write {own}({EVENT_TIME}), or `{own} as of_record` for the field"
        )


def lies_otherwise(state: TableState, settings: TableSettings) -> bool:
    """Whether it is partitioned in another way than the settings say; refused before anything is written, unless it
    may follow them."""
    wanted, found = partitions_of(settings), state.partitions
    if same_partitions(found, wanted):
        return False
    if settings.partition_changes == "refuse":
        raise TableChanged(
            f"the table {state.name} is partitioned by [{', '.join(map(str, found))}],"
            f" the settings say [{', '.join(map(str, wanted))}]: change `partition_by`, or name another table"
        )
    return True


def parts_zeros(plan: TablePlan, settings: TableSettings) -> bool:
    """Whether a fraction itself is a partition: to Spark's sort 0.0 and -0.0 are one, to Iceberg two partitions."""
    names = {each.column.partition(".")[0] for each in partitions_of(settings) if each.transform == "identity"}
    kinds = [re.sub(QUOTED, "", each.iceberg) for each in plan.columns if each.name.partition(".")[0] in names]
    return any(re.search(r"\b(float|double)\b", kind) for kind in kinds)


def additions(state: TableState, plan: TablePlan, settings: TableSettings) -> list[Add]:
    """Columns that the plan has and the table lacks."""
    there = {column.name for column in state.columns}
    missing = [column for column in spec(plan, settings).columns if column.name not in there]
    if met := next((column.name for column in missing if column.name in state.partition_names), None):
        raise TableChanged(
            f"{state.name} needs a column {met}, and has or had a partition field of that name, which Iceberg"
            " then gives to no column: name another table"
        )
    return [Add("", column) for column in missing]


# -- columns from the data --------------------------------------------------------------------------------


def _wanted(
    form: Format, fields: Fields, rows: DataFrame, settings: TableSettings, contract: Contract = FOLLOW
) -> list[ColumnPlan]:
    """A column for each field that tells its type, still under the field's own name."""
    mixed = [name for name, kind in fields if isinstance(kind, T.VariantType) and name not in settings.hints]
    usual = form.usual(rows, mixed) if mixed else {}
    found = []
    for name, kind in fields:
        if name in settings.hints:
            found.append(declared(name, settings.hints[name], required=False))
        elif text := to_iceberg(_allowed(usual.get(name, kind), (name,), contract), settings.max_depth):
            found.append(ColumnPlan(name, name, text))
    return found


def _columns(
    form: Format,
    wanted: Sequence[ColumnPlan],
    rows: DataFrame,
    settings: TableSettings,
    event_time: str | None,
    taken: Iterable[str],
    room: int,
    *,
    refuse_names: bool,
) -> tuple[tuple[ColumnPlan, ...], tuple[Refused, ...]]:
    first = {event_time, *settings.hints}  # they have room and their names before all others
    ordered = sorted(wanted, key=lambda column: column.field not in first)
    columns, refused = named(ordered, taken, room, settings.hints, refuse=refuse_names)
    # The event time itself stays as it was written: it may be a date today and a number tomorrow.
    texts = [column.field for column in columns if column.iceberg == "string" and column.field not in first]
    times = form.times(rows, texts) if texts and settings.infer_times else {}
    return tuple(replace(each, iceberg=times.get(each.field, each.iceberg)) for each in columns), refused


def new_fields(
    plan: TablePlan,
    settings: TableSettings,
    form: Format,
    fields: Fields,
    rows: DataFrame,
    *,
    refuse_names: bool = False,
) -> Growth:
    """Columns for fields that these rows have and the table lacks, nested ones too."""
    contract = contract_of(settings)
    if Rule.EVOLVE not in {contract.rule, *contract.columns.values()}:
        return Growth([], ())
    known = {column.field: column for column in plan.columns}
    growing = {
        field: column for field, column in known.items() if "struct<" in column.iceberg and field not in settings.hints
    }
    fields = _unhidden(form, plan.columns, growing, fields, rows)
    room = settings.max_columns - sum(width(column.iceberg) for column in plan.columns)
    limited = settings.max_new is not None and settings.max_new < room
    room = min(room, settings.max_new or room)
    within = _within(growing, fields, room, contract, settings.max_depth)
    room -= sum(width(column.type) for _, column in within.columns)
    new = [(name, kind) for name, kind in fields if name not in known and contract.rule_of(name) is Rule.EVOLVE]
    taken = (EVENT_TIME, *plan.derived, *plan.partitions, *(column.name for column in plan.columns))
    wanted = _wanted(form, new, rows, settings, contract)
    columns, more = _columns(form, wanted, rows, settings, plan.event_time, taken, room, refuse_names=refuse_names)
    beyond = _beyond_hints(form, (*plan.columns, *columns), fields, rows, settings)
    refused = (*within.refused, *more, *beyond)
    if limited:
        refused = tuple(replace(each, why=TOO_MANY_NEW) if each.why == TOO_MANY else each for each in refused)
    return Growth(
        [*within.columns, *(("", Column(each.name, each.iceberg, doc=each.doc)) for each in columns)],
        refused,
        (*within.whence, *(((), each.field) for each in columns)),
    )


def _within(growing: Mapping[str, ColumnPlan], fields: Fields, room: int, contract: Contract, max_depth: int) -> Growth:
    """New fields of objects that have a column already."""
    found: list[tuple[str, Column]] = []
    whence: list[tuple[Where, str]] = []
    refused: list[Refused] = []
    used: dict[Where, set[str]] = {}
    for field, kind in fields:
        if field not in growing:
            continue
        for where, path, siblings, name, new in _news(growing[field], kind):
            allowed = _allowed(new, (field, *path, name), contract)
            if (text := to_iceberg(allowed, max_depth - len(where))) is None:
                continue
            if contract.rule_of(field, *path, name) is not Rule.EVOLVE:
                continue
            text = text if width(text) <= room else "string"
            taken = used.setdefault(where, {each.casefold() for each in siblings})
            if why := _why_not(name, taken, room):
                refused.append(Refused(where, name, why))
                continue
            found.append((".".join((growing[field].name, *path)), Column(name, text)))
            whence.append((where, name))
            taken.add(name.casefold())
            room -= width(text)
    return Growth(found, tuple(refused), tuple(whence))


def _allowed(kind: T.DataType, path: tuple[str, ...], contract: Contract) -> T.DataType:
    """A new field's type without the fields within that may not be added."""
    match kind:
        case T.StructType():
            return T.StructType(
                [
                    T.StructField(field.name, _allowed(field.dataType, (*path, field.name), contract))
                    for field in kind.fields
                    if contract.rule_of(*path, field.name) is Rule.EVOLVE
                ]
            )
        case T.ArrayType():
            return T.ArrayType(_allowed(kind.elementType, (*path, ELEMENT), contract))
    return kind


def _beyond_hints(
    form: Format, columns: Sequence[ColumnPlan], fields: Fields, rows: DataFrame, settings: TableSettings
) -> tuple[Refused, ...]:
    """New fields of objects of which a hint says what they hold: a person has said it, so they do not grow."""
    hinted = {each.field: each for each in columns if "struct<" in each.iceberg and each.field in settings.hints}
    return tuple(
        Refused(where, name, HINTED)
        for field, kind in _unhidden(form, columns, hinted, fields, rows)
        if field in hinted
        for where, _, _, name, new in _news(hinted[field], kind)
        if to_iceberg(new)
    )


def _unhidden(
    form: Format, columns: Sequence[ColumnPlan], nested: Mapping[str, ColumnPlan], fields: Fields, rows: DataFrame
) -> Fields:
    """Where a value of another kind hides what is new beside it: its record is a dead letter, so the others tell."""
    if any(_hides(spark_type(nested[name].spark), kind) for name, kind in fields if name in nested):
        return infer(form, form.decode(rows, columns).where(F.col(FAULT).isNull()))
    return fields


def _why_not(name: str, taken: Collection[str], room: int) -> str | None:
    if not are_names([name]):
        return NO_NAME
    if name.casefold() in taken:
        return MEETS
    return None if room > 0 else TOO_MANY


def _news(column: ColumnPlan, seen: T.DataType) -> Iterator[New]:
    return _news_in((column.field,), (), spark_type(column.spark), seen)


def _news_in(where: Where, path: tuple[str, ...], there: T.DataType, seen: T.DataType) -> Iterator[New]:
    match there, seen:
        case T.ArrayType(), T.ArrayType():
            yield from _news_in((*where, None), (*path, ELEMENT), there.elementType, seen.elementType)
        case T.MapType(), T.StructType():
            yield from _news_in((*where, None), (*path, VALUE), there.valueType, _values(seen))
        case T.StructType(), T.StructType():
            inner = {field.name: field.dataType for field in there.fields}
            for field in seen.fields:
                if field.name in inner:
                    within = (*where, field.name), (*path, field.name)
                    yield from _news_in(*within, inner[field.name], field.dataType)
                else:
                    yield New(where, path, there.names, field.name, field.dataType)


def _hides(there: T.DataType, seen: T.DataType) -> bool:
    """Whether an object's fields can't be told, because in other records something else is in its place."""
    match there, seen:
        case T.StructType() | T.ArrayType() | T.MapType(), T.VariantType():
            return True
        case T.ArrayType(), T.ArrayType():
            return _hides(there.elementType, seen.elementType)
        case T.MapType(), T.StructType():
            return _hides(there.valueType, _values(seen))
        case T.StructType(), T.StructType():
            inner = {field.name: field.dataType for field in there.fields}
            return any(_hides(inner[field.name], field.dataType) for field in seen.fields if field.name in inner)
    return False


def _values(seen: T.StructType) -> T.DataType:
    """Of an object whose keys are those of a map: what its values have in common."""
    found: T.DataType = T.NullType()
    for field in seen.fields:
        found = in_common(found, field.dataType)
    return found
