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


class TestOffsetLogEntry:
    @pytest.mark.parametrize("text", [TEXT, LONG], ids=["of one sum", "of several"])
    def test_is_believed_if_its_checksums_match(self, tmp_path: Path, text: str) -> None:
        written(tmp_path, text)
        assert entry(tmp_path, 7) == text

    def test_with_one_flipped_bit_is_refused(self, tmp_path: Path) -> None:
        file = written(tmp_path)
        for at in range(len(TEXT)):
            for bit in range(8):
                flip(file, at, bit)
                with pytest.raises(TryAgain, match=f"was damaged.*{file.name} is not as it was written"):
                    entry(tmp_path, 7)
                flip(file, at, bit)
        assert entry(tmp_path, 7) == TEXT

    def test_with_one_flipped_bit_near_its_end_is_refused(self, tmp_path: Path) -> None:
        flip(written(tmp_path, LONG), len(LONG) - 3, 1)
        with pytest.raises(TryAgain, match="was damaged"):
            entry(tmp_path, 7)

    @pytest.mark.parametrize("length", [0, 5, 8, 11], ids=lambda length: f"{length} bytes")
    def test_with_truncated_checksums_is_refused(self, tmp_path: Path, length: int) -> None:
        sums = _sums_of(written(tmp_path))
        sums.write_bytes(sums.read_bytes()[:length])
        with pytest.raises(TryAgain, match="was damaged"):
            entry(tmp_path, 7)

    @pytest.mark.parametrize("at", [0, 8], ids=["magic", "sum"])
    def test_with_damaged_checksums_is_refused(self, tmp_path: Path, at: int) -> None:
        flip(_sums_of(written(tmp_path)), at, 3)
        with pytest.raises(TryAgain, match="was damaged"):
            entry(tmp_path, 7)

    def test_without_checksums_is_believed(self, tmp_path: Path) -> None:
        """Other file systems look after their bytes themselves."""
        _sums_of(written(tmp_path)).unlink()
        assert entry(tmp_path, 7) == TEXT

    def test_that_is_missing_cannot_be_read(self, tmp_path: Path) -> None:
        written(tmp_path)
        with pytest.raises(TryAgain, match=r"can't be read.*8"):
            entry(tmp_path, 8)

    def test_that_is_no_text_cannot_be_read(self, tmp_path: Path) -> None:
        (tmp_path / "7").write_bytes(b"v1\xff\n")
        with pytest.raises(TryAgain, match="can't be read"):
            entry(tmp_path, 7)
