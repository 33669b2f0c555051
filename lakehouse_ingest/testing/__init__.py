"""What every format, source and store promises, as plain checks: for ours, and for those of other distributions.

Each suite is a tuple of functions, called `CHECKS`; a check raises an AssertionError that says what it found. With
pytest, for one:

    from lakehouse_ingest.testing import formats

    @pytest.mark.parametrize("check", formats.CHECKS)
    def test_my_format(check):
        check(my_format, formats.Samples(...))
"""
