"""Spark's note of where a batch ends: believed as Spark wrote it, with the sums that Hadoop puts beside it, or not."""

import struct
from pathlib import Path
from zlib import crc32

import pytest

from lakehouse_ingest.errors import TryAgain
from lakehouse_ingest.ledger.offset_log import entry

TEXT = 'v1\n{"batchWatermarkMs":0}\n{"sensors":{"0":1700,"1":42}}'
LONG = 'v1\n{}\n{"sensors":{' + ",".join(f'"{number}":{number * 1000}' for number in range(200)) + "}}"
EACH = 512  # bytes that Hadoop sums up together


def written(folder: Path, text: str = TEXT, number: int = 7) -> Path:
    """As Hadoop writes it."""
    said, file = text.encode(), folder / str(number)
    sums = (struct.pack(">I", crc32(said[at : at + EACH])) for at in range(0, len(said), EACH))
    file.write_bytes(said)
    _sums_of(file).write_bytes(struct.pack(">4si", b"crc\0", EACH) + b"".join(sums))
    return file


def _sums_of(file: Path) -> Path:
    return file.with_name(f".{file.name}.crc")


def flip(file: Path, at: int, bit: int) -> None:
    said = bytearray(file.read_bytes())
    said[at] ^= 1 << bit
    file.write_bytes(said)


@pytest.mark.parametrize("text", [TEXT, LONG], ids=["of one sum", "of several"])
def test_what_is_as_it_was_written_is_believed(tmp_path: Path, text: str) -> None:
    written(tmp_path, text)
    assert entry(tmp_path, 7) == text


def test_no_bit_of_it_may_be_another(tmp_path: Path) -> None:
    file = written(tmp_path)
    for at in range(len(TEXT)):
        for bit in range(8):
            flip(file, at, bit)
            with pytest.raises(TryAgain, match=f"was damaged.*{file.name} is not as it was written"):
                entry(tmp_path, 7)
            flip(file, at, bit)
    assert entry(tmp_path, 7) == TEXT


def test_nor_one_far_behind(tmp_path: Path) -> None:
    flip(written(tmp_path, LONG), len(LONG) - 3, 1)
    with pytest.raises(TryAgain, match="was damaged"):
        entry(tmp_path, 7)


@pytest.mark.parametrize("length", [0, 5, 8, 11], ids=lambda length: f"{length} bytes")
def test_sums_that_are_cut_prove_nothing(tmp_path: Path, length: int) -> None:
    sums = _sums_of(written(tmp_path))
    sums.write_bytes(sums.read_bytes()[:length])
    with pytest.raises(TryAgain, match="was damaged"):
        entry(tmp_path, 7)


@pytest.mark.parametrize("at", [0, 8], ids=["magic", "sum"])
def test_sums_that_are_damaged_prove_nothing(tmp_path: Path, at: int) -> None:
    flip(_sums_of(written(tmp_path)), at, 3)
    with pytest.raises(TryAgain, match="was damaged"):
        entry(tmp_path, 7)


def test_without_sums_it_is_believed(tmp_path: Path) -> None:
    """Other file systems look after their bytes themselves."""
    _sums_of(written(tmp_path)).unlink()
    assert entry(tmp_path, 7) == TEXT


def test_one_that_is_not_there_is_no_end_of_anything(tmp_path: Path) -> None:
    written(tmp_path)
    with pytest.raises(TryAgain, match=r"can't be read.*8"):
        entry(tmp_path, 8)


def test_what_is_no_text_can_not_be_read(tmp_path: Path) -> None:
    (tmp_path / "7").write_bytes(b"v1\xff\n")
    with pytest.raises(TryAgain, match="can't be read"):
        entry(tmp_path, 7)
