"""The page prints the matrix that was kept last, and the matrix is of the questions and readers that there are."""

from tests.readers.matrix import PAGE, Matrix, in_page, kept, shown
from tests.readers.reading import READERS

AGAIN = "run `make readers`, or after a change of words `python -m tests.readers.matrix`"


class TestReaderMatrix:
    def test_is_on_the_page_as_it_was_kept(self) -> None:
        assert in_page(PAGE.read_text(encoding="utf-8")) == shown(kept()), AGAIN

    def test_answers_every_question_for_every_reader(self) -> None:
        found = kept()
        assert Matrix(found["versions"], found["answers"]).whole, AGAIN
        assert {*found["versions"]} == {kind.name for kind in READERS}

    def test_agrees_with_what_each_reader_declares(self) -> None:
        answers = kept()["answers"]
        for kind in READERS:
            for stored in answers[kind.name].values():
                assert {question: why for question, why in stored.items() if why} == kind.cannot, AGAIN
