"""The fields of a record as plain values of Python."""

import datetime as dt
from decimal import Decimal
from typing import Self, TypeAlias


class Real(float):
    """A number with a fraction or an exponent, which also knows its text: a decimal or text column needs all digits."""

    text: str

    def __new__(cls, text: str) -> Self:
        made = super().__new__(cls, text)
        made.text = text
        return made


Value: TypeAlias = (
    "bool | int | float | str | bytes | Decimal | dt.date | dt.datetime | list[Value] | dict[str, Value] | None"
)
Tree: TypeAlias = dict[str, Value]  # the fields of one record; numbers of a text format are int or Real
