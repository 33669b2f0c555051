"""What we write is read back right: one body of questions for every engine, through the REST catalog.

The readers that need nothing further, on local files, in `make test`; all of them, on S3 as well, in `make readers`.
"""

import pytest

from tests.readers.matrix import Matrix
from tests.readers.questions import QUESTIONS, Question
from tests.readers.reading import Reader

# The first one of all waits for what has to be fetched, built and written.
pytestmark = [pytest.mark.live, pytest.mark.timeout(1_800)]


class TestReader:
    @pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.name)
    def test_finds_what_was_sent(self, reader: Reader, question: Question, matrix: Matrix) -> None:
        if question.name in reader.cannot:
            with pytest.raises(Exception):  # noqa: B017, PT011 - each engine has exceptions of its own
                question.ask(reader)
        else:
            question.ask(reader)
        matrix.note(reader, question.name)

    def test_fails_without_the_files_that_pruning_leaves_out(self, reader: Reader) -> None:
        """Or one day could be read without leaving out the others."""
        with pytest.raises(Exception):  # noqa: B017, PT011 - each engine has exceptions of its own
            reader.rows("pruned", ["id"])
