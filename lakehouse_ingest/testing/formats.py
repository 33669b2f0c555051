"""What every format promises. Neither Spark nor Java is needed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from random import Random
from typing import Any

import pyarrow as pa

from lakehouse_ingest.records import RESCUED, SOURCE, Reason
from lakehouse_ingest.schema.arrow_types import wire_type
from lakehouse_ingest.schema.columns import EVENT_TIME, Aside, ColumnPlan, RefusedField, TablePlan, declared
from lakehouse_ingest.schema.seen import SeenFields
from lakehouse_ingest.schema.table_plans import wanted_columns
from lakehouse_ingest.settings import TableSettings
from lakehouse_ingest.stages.formats import ColumnarFormat, Format, chosen
from lakehouse_ingest.stages.plans import RoutePlan
from lakehouse_ingest.stages.records import RECORD_SCHEMA, Fault, Records, Tree
from lakehouse_ingest.stages.routing import unreadable_or
from lakehouse_ingest.stages.rows import Decoded, RowBuilder, Shaped
from lakehouse_ingest.stages.trees import holds

RECEIVED = 1_714_979_289_000_000  # when the broker took every record
ALTERED = 300  # records that are made by altering the samples


@dataclass(frozen=True)
class Samples:
    """Values of the format, and what they say."""

    # With the fields that they hold: not all of them the same ones, at least one of them text.
    sound: Sequence[tuple[bytes, Mapping[str, Any]]]
    broken: Sequence[tuple[bytes | None, Reason]]
    misfit: tuple[bytes, str, str]  # with a field, and a type that its value is not of
    name: str = ""  # what `streams.format` names, if the format's package is installed

    @property
    def sound_values(self) -> list[bytes | None]:
        return [value for value, _ in self.sound]

    @property
    def broken_values(self) -> list[bytes | None]:
        return [value for value, _ in self.broken]

    @property
    def reasons(self) -> list[str | None]:
        """Of the sound ones, and then of the broken ones."""
        return [*(None for _ in self.sound), *(str(reason) for _, reason in self.broken)]

    @property
    def of_few(self) -> str:
        """A field that some sound records have and others lack."""
        held = [{*fields} for _, fields in self.sound]
        few = held[0].union(*held) - held[0].intersection(*held)
        assert few, "the samples need a field that not all sound records have"
        return min(few)


def every_record_comes_out_once_and_as_it_was(form: Format, samples: Samples) -> None:
    values = [*samples.sound_values, *samples.broken_values]
    before = list(values)
    for each in (form, _Exactly(form)):
        found = _shaped(each, values, _columns(form, samples))
        of_rows = found.rows[SOURCE].field("offset").to_pylist()
        assert of_rows == found.numbers.to_pylist(), f"the rows of records {found.numbers} have the offsets {of_rows}"
        numbers = sorted([*of_rows, *found.faults, *found.news])
        assert numbers == list(range(len(values))), f"of {len(values)} records these come out: {numbers}"
        times = {*found.rows[EVENT_TIME].cast(pa.int64()).to_pylist()}
        assert times <= {RECEIVED}, f"the records' timestamps become {times}"
    assert values == before, "a value has changed"


def sound_records_have_their_fields_and_no_fault(form: Format, samples: Samples) -> None:
    found = _shaped(form, samples.sound_values, _columns(form, samples))
    for number, (value, fields) in enumerate(samples.sound):
        tree = form.tree(value)
        assert not isinstance(tree, Fault), f"{value!r} has the fault {tree}"
        assert _held(tree) == _held(fields), f"{value!r} has the fields {tree}"
        assert number not in found.faults, f"{value!r} has the fault {found.faults.get(number)}"
    for row, (value, fields) in zip(found.rows.to_pylist(), samples.sound, strict=True):
        held = _without_nulls({name: each for name, each in row.items() if name not in (SOURCE, EVENT_TIME)})
        assert held == _without_nulls(fields), f"{value!r} becomes the row {held}"


def broken_records_have_their_reason_and_their_neighbours_none(form: Format, samples: Samples) -> None:
    values = [*samples.sound_values, *samples.broken_values]
    for columns in (_columns(form, samples), []):
        faults = _faults(form, values, columns)
        reasons = [fault and str(fault.reason) for fault in faults]
        assert reasons == samples.reasons, f"with {len(columns)} columns the reasons are {reasons}"
        assert all(fault.detail and fault.stage for fault in faults if fault), "a fault lacks detail or stage"


def a_record_without_a_table_says_first_that_it_is_broken(form: Format, samples: Samples) -> None:
    earlier = Fault(Reason.NAME_TAKEN, "earlier", "route", "earlier")
    values = [*samples.sound_values, *samples.broken_values]
    found = unreadable_or(form, _records(values), earlier)
    assert [*found] == list(range(len(values))), f"of {len(values)} records these have a fault: {[*found]}"
    reasons = [None if fault is earlier else str(fault.reason) for fault in found.values()]
    assert reasons == samples.reasons, f"without a table the reasons are {reasons}"


def a_value_that_its_column_does_not_take_is_a_fault(form: Format, samples: Samples) -> None:
    value, field, kind = samples.misfit
    first, *others = _faults(form, [value, *samples.broken_values], [declared(field, kind, required=False)])
    found = first and first.reason
    assert found in (Reason.WRONG_TYPE, Reason.OUT_OF_RANGE), f"{value!r} as {field} {kind} has the reason {found}"
    _check_broken(others, samples)


def a_value_in_a_refused_field_is_a_fault(form: Format, samples: Samples) -> None:
    name = samples.of_few
    columns = [column for column in _columns(form, samples) if column.field != name]
    faults = _faults(form, samples.sound_values, columns, RefusedField((), name, "no room"))
    reasons = [fault and fault.reason for fault in faults]
    wanted = [Reason.NO_COLUMN if name in fields else None for _, fields in samples.sound]
    assert reasons == wanted, f"with {name} refused the reasons are {reasons}"


def a_contract_rescues_what_does_not_fit(form: Format, samples: Samples) -> None:
    value, field, kind = samples.misfit
    columns = [declared(field, kind, required=False)]
    found = _shaped(form, [value, *samples.broken_values], columns, aside=Aside(refuses=False))
    assert 0 not in found.faults, f"{value!r} as {field} {kind} has the fault {found.faults.get(0)}"
    row, *more = found.rows.to_pylist()
    assert not more, f"{value!r} and broken records become the rows {more}"
    assert row[field] is None, f"{value!r} as {field} {kind} becomes {row[field]!r}"
    assert field in (row[RESCUED] or ""), f"of {value!r} only {row[RESCUED]} is rescued"
    _check_broken([found.faults.get(number) for number in range(1, 1 + len(samples.broken))], samples)


def what_was_seen_is_told_of_each_record_and_of_nothing_is_nothing(form: Format, samples: Samples) -> None:
    of_each = [{*_seen(form, [value]).fields} for value in samples.sound_values]
    held = [{name for name, seen in _seen(form, [value]).fields.items() if seen.values} for value in _all(samples)]
    wanted = [{*fields} for _, fields in samples.sound]
    assert held == [*wanted, *(set() for _ in samples.broken)], f"each record alone shows these fields: {held}"
    assert all(few <= more for few, more in zip(wanted, of_each, strict=True)), f"these fields are seen: {of_each}"
    together = {column.field for column in _columns(form, samples)}
    assert together == wanted[0].union(*wanted), f"all records together show these fields: {together}"
    merged = SeenFields()
    for value in reversed(_all(samples)):
        merged.merge(_seen(form, [value]))
    assert merged == _seen(form, _all(samples)), "what was seen depends on the order of the records"


def a_field_is_told_as_text(form: Format, samples: Samples) -> None:
    texts = {name for _, fields in samples.sound for name, each in fields.items() if isinstance(each, str)}
    assert texts, "the samples need a field of text"
    nobody = "".join(sorted(texts)) + "?"
    values = pa.array([None, *_all(samples)], pa.binary()).slice(1)
    for name in (*texts, nobody):
        found = form.field(values, [name])
        assert found.type == pa.string(), f"the field {name} has the type {found.type}"
        assert len(found) == len(values), f"the field {name} of {len(values)} records has {len(found)} texts"
        wanted = [fields.get(name) for _, fields in samples.sound]
        assert found.to_pylist()[: len(wanted)] == wanted, f"the texts of the field {name} are {found}"
        within = form.field(values, [name, nobody]).to_pylist()
        assert within == [None] * len(values), f"a path within the text {name} has the texts {within}"
        assert len(form.field(values.slice(0, 0), [name])) == 0, "without records there are texts of a field"


def columns_and_the_exact_decoder_agree(form: Format, samples: Samples) -> None:
    """A record that the columns call sound has the same values in both, and nothing that the columns don't take."""
    if not isinstance(form, ColumnarFormat):
        return
    seed = Random().randrange(2**32)
    values = [*_all(samples), samples.misfit[0], *_altered(samples, Random(seed))]
    for columns in _column_sets(form, samples):
        what = f"with the columns {[f'{each.field} {each.takes}' for each in columns]}, seed {seed},"
        given = pa.array([b"{", *values], pa.binary()).slice(1)
        data, sound = form.columns(given, columns)
        wanted = pa.struct([(each.field, wire_type(each)) for each in columns])
        assert data.type == wanted, f"{what} the type is {data.type}"
        assert sound.type == pa.bool_(), f"{what} what is sound has the type {sound.type}"
        assert len(data) == len(sound) == len(values), f"{what} there are {len(data)} and {len(sound)} entries"
        exact = _decoded(_Exactly(form), values, columns, aside=Aside(refuses=True))
        rows = dict(zip(exact.numbers.to_pylist(), exact.data.to_pylist(), strict=True))
        for number, (is_sound, fast) in enumerate(zip(sound.to_pylist(), data.to_pylist(), strict=True)):
            if is_sound:
                assert number in rows, f"{what} {values[number]!r} is called sound; {exact.faults.get(number)}"
                # By their texts, because NaN is not equal to itself.
                assert repr(fast) == repr(rows[number]), f"{what} {values[number]!r} is {fast} and {rows[number]}"
        for few in (0, 1):
            data, sound = form.columns(given.slice(few, few), columns)
            assert len(data) == len(sound) == few, f"{what} {len(data)} entries of {few} values"


def nothing_raises_whatever_the_bytes_are(form: Format, samples: Samples) -> None:
    seed = Random().randrange(2**32)
    given = [*_all(samples), bytes(range(256)), b"\x00", b"\xff\xfe", *_altered(samples, Random(seed))]
    columns = _columns(form, samples)
    try:
        faults = [each for each in _faults(form, given, columns) if each]
        form.field(pa.array(given, pa.binary()), [column.field for column in columns][:1])
        wanted_columns(_seen(form, given).fields, TableSettings())
    except Exception as failure:
        raise AssertionError(f"with the seed {seed} it raises {failure!r}") from failure
    assert all(isinstance(fault.reason, Reason) for fault in faults), "a reason is not in records.Reason"


def another_process_finds_it_by_its_name(form: Format, samples: Samples) -> None:
    """A task of Spark is another process."""
    if samples.name:
        with ProcessPoolExecutor(1, get_context("spawn")) as process:
            found = process.submit(_trees, samples.name, _all(samples)).result()
        assert found == [form.tree(value) for value in _all(samples)], f"another process finds {found}"


Check = Callable[[Format, Samples], None]
CHECKS: tuple[Check, ...] = (
    every_record_comes_out_once_and_as_it_was,
    sound_records_have_their_fields_and_no_fault,
    broken_records_have_their_reason_and_their_neighbours_none,
    a_record_without_a_table_says_first_that_it_is_broken,
    a_value_that_its_column_does_not_take_is_a_fault,
    a_value_in_a_refused_field_is_a_fault,
    a_contract_rescues_what_does_not_fit,
    what_was_seen_is_told_of_each_record_and_of_nothing_is_nothing,
    a_field_is_told_as_text,
    columns_and_the_exact_decoder_agree,
    nothing_raises_whatever_the_bytes_are,
    another_process_finds_it_by_its_name,
)


class _Exactly:
    """A format without its fast decoder."""

    def __init__(self, form: Format) -> None:
        self.tree, self.field, self.untyped = form.tree, form.field, getattr(form, "untyped", False)


def _trees(name: str, values: Sequence[bytes | None]) -> list[Tree | Fault]:
    form = chosen(name)
    return [form.tree(value) for value in values]


def _all(samples: Samples) -> list[bytes | None]:
    return [*samples.sound_values, *samples.broken_values]


def _altered(samples: Samples, dice: Random) -> Iterator[bytes]:
    """The samples with a part cut out, doubled, taken from another one, or with another byte in it."""
    there = [value for value in (*_all(samples), samples.misfit[0]) if value]
    for _ in range(ALTERED):
        value, other = dice.choice(there), dice.choice(there)
        first, last = sorted(dice.randrange(len(value) + 1) for _ in range(2))
        new = dice.choice((b"", value[first:last] * 2, other, dice.randbytes(1)))
        yield value[:first] + new + value[last:]


def _column_sets(form: Format, samples: Samples) -> Iterator[list[ColumnPlan]]:
    """The usual columns in some orders and numbers, and with other types."""
    columns, (_, field, kind) = _columns(form, samples), samples.misfit
    yield from (columns, columns[::-1], [], [declared(field, kind, required=False)])
    yield from ([column] for column in columns)
    yield from ([replace(each, iceberg=other) for each in columns] for other in ("string", "long", "double"))
    yield [replace(each, required=True) for each in columns]


def _records(values: Sequence[bytes | None]) -> Records:
    """As a reader gives them: of one partition, their offsets in the order given."""
    count = len(values)
    columns = [range(count), [RECEIVED] * count, [None] * count, values, [None] * count]
    rows = [pa.array(column, each.type) for column, each in zip(columns, RECORD_SCHEMA, strict=True)]
    return Records("events", 0, "log", pa.RecordBatch.from_arrays(rows, schema=RECORD_SCHEMA))


def _builder(
    form: Format, columns: Sequence[ColumnPlan], refused: Sequence[RefusedField] = (), aside: Aside | None = None
) -> RowBuilder:
    return RowBuilder(RoutePlan(TablePlan("suite", tuple(columns), None, "iso", aside=aside), tuple(refused)), form)


def _decoded(
    form: Format, values: Sequence[bytes | None], columns: Sequence[ColumnPlan], aside: Aside | None = None
) -> Decoded:
    return _builder(form, columns, aside=aside).decoded(_records(values))


def _shaped(
    form: Format, values: Sequence[bytes | None], columns: Sequence[ColumnPlan], aside: Aside | None = None
) -> Shaped:
    found = _builder(form, columns, aside=aside).rows(_records(values))
    found.rows.validate(full=True)
    return found


def _faults(
    form: Format, values: Sequence[bytes | None], columns: Sequence[ColumnPlan], *refused: RefusedField
) -> list[Fault | None]:
    """Of each record, by the order of the values."""
    found = _builder(form, columns, refused).rows(_records(values))
    return [found.faults.get(number) for number in range(len(values))]


def _check_broken(faults: Sequence[Fault | None], samples: Samples) -> None:
    reasons = [fault and fault.reason for fault in faults]
    wanted = [reason for _, reason in samples.broken]
    assert reasons == wanted, f"of broken records the reasons are {reasons}"


def _seen(form: Format, values: Sequence[bytes | None]) -> SeenFields:
    found = SeenFields()
    for value in values:
        if not isinstance(tree := form.tree(value), Fault):
            found.add(tree)
    return found


def _columns(form: Format, samples: Samples) -> list[ColumnPlan]:
    """Those that the sound records would be given."""
    return wanted_columns(_seen(form, samples.sound_values).fields, TableSettings())


def _held(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _without_nulls(each) for name, each in fields.items() if holds(each)}


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value
