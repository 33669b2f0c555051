"""Figures read the same wherever a person sees them."""

import pytest

from lakehouse_ingest.observe import figures


class TestFigures:
    @pytest.mark.parametrize(
        ("seconds", "read", "ago"),
        [
            (None, "?", "never"),
            (-1, "0 s", "0 s ago"),
            (0.04, "0 s", "0 s ago"),
            (1.46, "1.5 s", "1 s ago"),
            (2, "2 s", "2 s ago"),
            (45.4, "45 s", "45 s ago"),
            (119, "119 s", "119 s ago"),
            (120, "2 min", "2 min ago"),
            (7_200, "2 h", "2 h ago"),
            (172_800, "2 d", "2 d ago"),
        ],
    )
    def test_of_time_are_in_the_largest_unit_of_which_there_are_at_least_two(
        self, seconds: float | None, read: str, ago: str
    ) -> None:
        assert (figures.seconds(seconds), figures.ago(seconds)) == (read, ago)

    @pytest.mark.parametrize(
        ("size", "read"),
        [
            (0, "0 B"),
            (1_023, "1023 B"),
            (1_024, "1 KiB"),
            (5_000_000, "4.8 MiB"),
            (50_000_000, "48 MiB"),
            (9e15, "8185 TiB"),
        ],
    )
    def test_of_size_have_one_decimal_below_ten(self, size: float, read: str) -> None:
        assert figures.size(size) == read

    def test_of_counts_rates_and_lag_are_readable(self) -> None:
        assert (figures.count(None), figures.count(1_234_567)) == ("?", "1,234,567")
        assert [figures.rate(each) for each in (None, 0, 3.14, 12.3, 1_234)] == ["?", "0", "3.1", "12", "1,234"]
        assert (figures.lag(None, None), figures.lag(4_321, 1.5)) == ("?", "4,321 · 1.5 s")
