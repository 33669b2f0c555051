"""Random JSON records, most of them sound, the others damaged in one of many ways."""

import random
from collections.abc import Callable, Sequence

from lakehouse_ingest.schema.columns import ColumnPlan, declared

DECLARED = {
    "utf8": "Utf8",
    "né": "string",
    "int8": "Int8",
    "int32": "Int32",
    "int64": "Int64",
    "uint32": "UInt32",
    "uint64": "UInt64",
    "float32": "Float32",
    "float64": "Float64",
    "boolean": "Boolean",
    "at": "Timestamp",
    "day": "date",
    "binary": "Binary",
    "price": "decimal(5,2)",
    "huge": "decimal(38,0)",
    "exact": "decimal(38,10)",
    "place": "struct<lat: double, tags: list<string>, at: timestamptz, more: struct<n: long, Lat: int>>",
    "counts": "list<int>",
    "sizes": "map<string, float>",
    "parts": "list<struct<n: long, price: decimal(9,3)>>",
    "things": "map<string, struct<a: date, b: list<list<long>>>>",
}

Dice = random.Random
Make = Callable[[Dice], str]
Field = tuple[str, str]  # the key and the value, as they are written

TEXTS = [
    '""',
    '"a"',
    '"12"',
    '"é😀"',
    r'"\u00e9\ud83d\ude00\n\"\\\/"',
    '"' + "x" * 90 + '"',
    '"[{"',
    '"null"',
    '"\x7f"',
]
INTS = ["0", "-1", "7", "255", "2147483647", "-2147483648", "4294967295", "9007199254740993", "-0"]
HUGE_INTS = ["9223372036854775807", "9223372036854775808", "-9223372036854775809", str(2**64), "9" * 38, "9" * 39]
REALS = [
    "0.1",
    "1.5",
    "-0.0",
    "1.50",
    "3.14159",
    "1e2",
    "1E+2",
    "5e-3",
    "999.99",
    "123456789.123456789",
    "0.30000000004",
]
ODD_REALS = [
    "1e400",
    "-1e400",
    "3.5e38",
    "3.4028235e38",
    "1e-400",
    "1.7976931348623157e308",
    "0e99",
    "4.35",
    "2.5e-324",
]
TIMES = ["2024-05-06T07:08:09Z", "2024-05-06 07:08:09.123+02:00", "2024-02-29", "2023-02-29T00:00:00Z", "soon"]
DAYS = ["2024-05-06", "2024-02-29", "2024-02-30", "0000-01-01", "0001-01-01", "9999-12-31", "2024-5-6", "2024-05-06 "]
BASE64 = ["", "AP8=", "AP9=", "AP8", "AA==", "AB==", "A+/B", "A-_B", "A P 8 =", "====", "AP8=AP8=", "é"]
LITERALS = ["null", "true", "false", "{}", "[]", "[null]", '{"a":null}', '{"a":1.0}', "[1,[2,[3]]]", '{"x":{"y":"z"}}']
NO_JSON = ["NaN", "Infinity", "-Infinity", "nul", "01", "1.", ".5", "+1", "'a'", "[1,]", '{"a":1,}', "-", "1e", "0x1"]
NO_JSON += [
    "yes",
    '"\x01"',
    r'"\ud83d"',
    r'"\ude00\ud83d"',
    r'"\x"',
    r'"\u12"',
    '"a',
    "[",
    "{",
    '{"a"}',
    "1 2",
    "1" * 1_001,
]
NO_JSON += ["0." + "1" * 1_500, "[" * 205 + "]" * 205, "[" * 198 + "]" * 198, "9" * 999, "1" * 5_000, "\ufeff1"]
ANY = [*TEXTS, *INTS, *HUGE_INTS, *REALS, *ODD_REALS, *LITERALS, *NO_JSON]
ANY += [f'"{each}"' for each in (*TIMES, *DAYS, *BASE64)]


def some(values: Sequence[str], form: str = "{}") -> Make:
    return lambda dice: form.format(dice.choice(values))


def record_of(**fields: Make) -> Make:
    def made(dice: Dice) -> str:
        return "{" + ",".join(f'"{key}":{make(dice)}' for key, make in fields.items() if dice.random() < 0.9) + "}"

    return made


def list_of(make: Make) -> Make:
    return lambda dice: "[" + ",".join(make(dice) for _ in range(dice.randrange(4))) + "]"


def map_of(make: Make) -> Make:
    return lambda dice: "{" + ",".join(f"{dice.choice(TEXTS)}:{make(dice)}" for _ in range(dice.randrange(4))) + "}"


def number(low: int, high: int) -> Make:
    return lambda dice: str(dice.randint(low, high))


def real(dice: Dice) -> str:
    return dice.choice(
        [repr(dice.gauss(0, 100)), f"{dice.gauss(0, 10):.2f}", dice.choice(REALS), str(dice.getrandbits(60))]
    )


text, a_time, a_day = some(TEXTS), some(TIMES[:2], '"{}"'), some(DAYS[:2], '"{}"')
price = some(["0", "1.50", "-999.99", "7", "0.1"])
USUAL: dict[str, Make] = {
    "utf8": text,
    "né": text,
    "int8": number(-300, 300),
    "int32": number(-(2**31), 2**31 - 1),
    "int64": number(-(2**63), 2**63 - 1),
    "uint32": number(0, 2**32 - 1),
    "uint64": number(0, 2**64 - 1),
    "float32": real,
    "float64": real,
    "boolean": some(["true", "false"]),
    "at": a_time,
    "day": a_day,
    "binary": some(BASE64[:2], '"{}"'),
    "price": price,
    "huge": number(0, 10**38 - 1),
    "exact": price,
    "place": record_of(lat=real, tags=list_of(text), at=a_time, more=record_of(n=number(0, 9), Lat=number(0, 9))),
    "counts": list_of(number(0, 99)),
    "sizes": map_of(real),
    "parts": list_of(record_of(n=number(0, 99), price=price)),
    "things": map_of(record_of(a=a_day, b=list_of(list_of(number(0, 9))))),
}


def columns_of(dice: Dice) -> tuple[ColumnPlan, ...]:
    names = dice.sample(list(DECLARED), dice.randint(1, len(DECLARED)))
    return tuple(declared(name, DECLARED[name], required=False) for name in names)


def records_of(columns: Sequence[ColumnPlan], dice: Dice, count: int, damaged: float) -> list[bytes]:
    """Records of these columns. `damaged` is the share of those that are changed somewhere."""
    names = [each.field for each in columns]
    pool = [[(f'"{name}"', USUAL[name](dice)) for name in names] for _ in range(max(1, count // 10))]
    found = []
    for _ in range(count):
        fields = [each for each in dice.choice(pool) if dice.random() < 0.9]
        harm = dice.choice((*HARMS, *ROUGH)) if dice.random() < damaged else None
        if harm in HARMS:
            harm(fields, dice)
        comma, colon = dice.choice(((",", ":"), (", ", ": "), (" ,\n", "\t:\r ")))
        record = ("{" + comma.join(f"{key}{colon}{value}" for key, value in fields) + "}").encode()
        found.append(harm(record, dice) if harm in ROUGH else record)
    return found


# -- harm to a field --------------------------------------------------------------------------------------


def another_value(fields: list[Field], dice: Dice) -> None:
    if fields:
        at = dice.randrange(len(fields))
        fields[at] = fields[at][0], dice.choice(ANY)


def another_key(fields: list[Field], dice: Dice) -> None:
    if fields:
        at = dice.randrange(len(fields))
        key, value = fields[at]
        fields[at] = (
            dice.choice([key.upper(), key.capitalize(), f'"{key[1:-1]} "', rf'"\u{ord(key[1]):04x}{key[2:]}']),
            value,
        )


def one_key_twice(fields: list[Field], dice: Dice) -> None:
    if fields:
        key, value = dice.choice(fields)
        fields.insert(dice.randrange(len(fields) + 1), (key, dice.choice([*ANY, value, value, value])))


def a_new_key(fields: list[Field], dice: Dice) -> None:
    key, value = dice.choice(['"new"', '""', '"f0"', r'"\ud800"']), dice.choice([*LITERALS[:5], dice.choice(ANY)])
    fields.insert(dice.randrange(len(fields) + 1), (key, value))


def harm_within(fields: list[Field], dice: Dice) -> None:
    nested = [at for at, (_, value) in enumerate(fields) if value[0] in "[{" and len(value) > 2]
    if nested:
        at = dice.choice(nested)
        key, value = fields[at]
        inside = dice.choice([at for at, each in enumerate(value) if each in "[{:,"]) + 1
        more = dice.choice(
            [f'"new":{dice.choice(ANY)},', f"{dice.choice(ANY)},", dice.choice(ANY), '"n":1,', '"lat":2,', "null,"]
        )
        fields[at] = key, value[:inside] + more + value[inside:]


# -- harm to the whole record -----------------------------------------------------------------------------


def other_bytes(record: bytes, dice: Dice) -> bytes:
    changed = bytearray(record)
    for _ in range(dice.randint(1, 2)):
        at = dice.randrange(len(changed))
        match dice.randrange(4):
            case 0:
                changed[at] = dice.randrange(256)
            case 1:
                changed[at] = dice.choice(b'0123456789{}[],:"\\eE.-+ntu ')
            case 2:
                changed.insert(at, dice.choice(b'0123456789{}[],:"\\eE.-+ntu \x00\xc3\xed'))
            case _:
                del changed[at]
                changed += b"" if changed else b"{"
    return bytes(changed)


def cut(record: bytes, dice: Dice) -> bytes:
    return record[: dice.randrange(len(record))]


def more_around(record: bytes, dice: Dice) -> bytes:
    before = dice.choice([b"", b"", b" ", b"\n", b"\xef\xbb\xbf", b"[", b"x", b"\x00", b"\xc2\xa0"])
    return before + record + dice.choice([b"", b" ", b"\r\n", b"}", b",", b"x", b"{}", b"\n{}", b"]", b"\x00", b"null"])


HARMS = (another_value, another_value, another_key, one_key_twice, a_new_key, harm_within, harm_within)
ROUGH = (other_bytes, other_bytes, cut, more_around)
