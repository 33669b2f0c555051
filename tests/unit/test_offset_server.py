"""Our process owns the offsets of a query, whatever becomes of the process that asks for them."""

import json
import pickle
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from random import Random
from threading import Event

import pytest

from lakehouse_ingest.errors import TryAgain
from lakehouse_ingest.pipeline import offset_server
from lakehouse_ingest.pipeline.offset_server import NextEnd, OffsetQuestions, OffsetServer, by_topic
from lakehouse_ingest.pipeline.offset_source import Planner
from lakehouse_ingest.records import Offsets, Range

START = {("t", 0): 5, ("t", 1): 0}


def further(by: int) -> NextEnd:
    return lambda start: {at: offset + by for at, offset in start.items()}


@contextmanager
def asking(next_end: NextEnd, patience_s: float = 0.2) -> Iterator[tuple[OffsetServer, OffsetQuestions]]:
    with OffsetServer(START, next_end, patience_s) as server:
        questions = OffsetQuestions(server.address, 10)
        try:
            yield server, questions
        finally:
            questions.close()


def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class TestStart:
    def test_is_given_by_value_and_stays(self) -> None:
        start = dict(START)
        with OffsetServer(start, further(1)) as server:
            start["t", 0] = 99
            questions = OffsetQuestions(server.address)
            questions.latest()
            server.finish(0)
            assert questions.initial() == {"t": {"0": 5, "1": 0}}
            questions.close()


class TestBatch:
    def test_begins_where_the_one_before_ended(self) -> None:
        with asking(further(2)) as (server, questions):
            for number in range(5):
                end = {("t", 0): 7 + 2 * number, ("t", 1): 2 + 2 * number}
                assert questions.latest() == by_topic(end)
                assert server.batch(number) == Range({at: offset - 2 for at, offset in end.items()}, end)
                server.finish(number)

    def test_is_the_same_until_it_has_finished(self) -> None:
        calls: list[Offsets] = []

        def next_end(start: Offsets) -> Offsets:
            calls.append(start)
            return further(len(calls))(start)

        with asking(next_end) as (server, questions):
            assert questions.latest() == questions.latest() == {"t": {"0": 6, "1": 1}}
            again = OffsetQuestions(server.address)  # the planner's process was started again
            assert (again.initial(), again.latest()) == ({"t": {"0": 5, "1": 0}}, {"t": {"0": 6, "1": 1}})
            again.close()
            server.finish(0)
            assert questions.latest() == {"t": {"0": 8, "1": 3}}
        assert calls == [START, {("t", 0): 6, ("t", 1): 1}]

    def test_of_another_number_is_not_run(self) -> None:
        with asking(further(1)) as (server, questions):
            questions.latest()
            for number in (1, -1):
                with pytest.raises(TryAgain, match=f"Spark runs batch {number} of a query that has finished 0"):
                    server.batch(number)
            server.finish(0)
            with pytest.raises(TryAgain):
                server.finish(0)

    def test_that_nobody_planned_is_empty(self) -> None:
        """Spark runs a first batch even if the source has nothing new."""
        with asking(dict) as (server, questions):
            assert questions.latest() == by_topic(START)
            assert len(server.batch(0)) == 0
            server.finish(0)
            assert server.batch(1) == Range(START, START)

    def test_begins_a_new_partition_at_its_first_record(self) -> None:
        ends = iter([{**START, ("t", 2): 4}, {**START, ("t", 2): 6}])
        with asking(lambda _: next(ends)) as (server, questions):
            questions.latest()
            assert server.batch(0) == Range({**START, ("t", 2): 0}, {**START, ("t", 2): 4})
            server.finish(0)
            questions.latest()
            assert server.batch(1) == Range({**START, ("t", 2): 4}, {**START, ("t", 2): 6})

    @pytest.mark.parametrize("end", [{("t", 0): 4, ("t", 1): 9}, {("t", 0): 9}], ids=["back", "without a partition"])
    def test_never_goes_back(self, end: Offsets) -> None:
        with asking(lambda _: end) as (server, questions):
            with pytest.raises(RuntimeError, match="TryAgain: a batch was planned that goes back in topic t partition"):
                questions.latest()
            assert isinstance(server.failure, TryAgain)
            assert len(server.batch(0)) == 0


class TestWaiting:
    def test_ends_after_a_while_with_nothing_new(self) -> None:
        """What is found later is part of the next answer, and not of a batch that Spark runs meanwhile."""
        is_there = Event()

        def next_end(start: Offsets) -> Offsets:
            is_there.wait(10)
            return further(3)(start)

        with asking(next_end, 0.05) as (server, questions):
            began = time.monotonic()
            assert questions.latest() == by_topic(START)
            assert 0.05 <= time.monotonic() - began < 5
            is_there.set()
            until(lambda: server._asked is not None and server._asked.done())
            assert len(server.batch(0)) == 0
            server.finish(0)
            assert questions.latest() == {"t": {"0": 8, "1": 3}}
            assert len(server.batch(1)) == 6

    def test_is_done_by_one_at_a_time(self) -> None:
        inside, most, dice = 0, 0, Random(1)

        def next_end(start: Offsets) -> Offsets:
            nonlocal inside, most
            inside += 1
            most = max(most, inside)
            time.sleep(dice.random() / 50)
            inside -= 1
            return further(1)(start)

        def ask(address: str) -> list[int]:
            questions = OffsetQuestions(address)
            found = [questions.latest()["t"]["0"] for _ in range(40)]
            questions.close()
            return found

        with OffsetServer(START, next_end, 0.01) as server, ThreadPoolExecutor(4) as threads:
            asked = [threads.submit(ask, server.address) for _ in range(4)]
            number, deadline = 0, time.monotonic() + 30
            while not all(each.done() for each in asked):
                assert time.monotonic() < deadline
                if len(server.batch(number)):
                    server.finish(number)
                    number += 1
                time.sleep(0.001)
            found = [each.result() for each in asked]
        assert most == 1
        assert all(each == sorted(each) for each in found)
        assert max(map(max, found)) <= 5 + number + 1

    def test_does_not_keep_the_server_from_closing(self) -> None:
        forever = Event()

        def next_end(start: Offsets) -> Offsets:
            forever.wait(20)
            return start

        server = OffsetServer(START, next_end, 15)
        questions = OffsetQuestions(server.address)
        with ThreadPoolExecutor(1) as threads:
            asked = threads.submit(questions.latest)
            until(lambda: server._asked is not None)
            began = time.monotonic()
            server.close()
            with pytest.raises(OSError, match=r".+"):
                asked.result(10)
            assert time.monotonic() - began < 10
            forever.set()
        questions.close()


class TestFailure:
    def test_reaches_both_processes(self) -> None:
        def next_end(_: Offsets) -> Offsets:
            raise TryAgain("no answer from `source.brokers`")

        with asking(next_end) as (server, questions):
            with pytest.raises(RuntimeError, match=r"TryAgain: no answer from `source.brokers`"):
                questions.latest()
            assert str(server.failure) == "no answer from `source.brokers`"


class TestServer:
    def test_is_closed_to_others(self) -> None:
        with OffsetServer(START, further(1)) as server:
            folder = Path(server.address).parent
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert not folder.exists()

    def test_answers_nobody_once_it_is_closed(self) -> None:
        before = threading.active_count()
        with asking(further(1)) as (server, questions):
            questions.latest()
            server.close()
            server.close()
            with pytest.raises(OSError, match=r".+"):
                questions.latest()
            until(lambda: threading.active_count() <= before)

    def test_has_a_short_path_whatever_the_temporary_folder(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        deep = tmp_path / ("deep" * 25)
        deep.mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(deep))
        with asking(further(1)) as (server, questions):
            assert len(server.address.encode()) <= offset_server.LONGEST_PATH
            assert questions.latest() == {"t": {"0": 6, "1": 1}}
        assert list(deep.iterdir()) == []

    @pytest.mark.parametrize(
        "question",
        [b"nonsense\n", b"{}\n", b"[1]\n", b'{"ask": []}\n', b'{"ask": "all"}\n', b"\xff\n"],
        ids=repr,
    )
    def test_refuses_what_is_no_question_and_goes_on(self, question: bytes) -> None:
        with asking(further(1)) as (server, questions), socket.socket(socket.AF_UNIX) as other:
            other.settimeout(10)
            other.connect(server.address)
            other.sendall(question)
            assert "failed" in json.loads(other.makefile("rb").readline())
            assert server.failure is None
            assert questions.latest() == {"t": {"0": 6, "1": 1}}

    def test_hangs_up_on_a_question_without_an_end(self) -> None:
        with asking(further(1)) as (server, _), socket.socket(socket.AF_UNIX) as other:
            other.settimeout(10)
            other.connect(server.address)
            other.sendall(b"x" * offset_server.LONGEST_QUESTION)
            assert other.recv(1) == b""

    def test_may_have_many_partitions(self) -> None:
        many = {("a topic with a name of some length", number): 2**62 + number for number in range(50_000)}
        with OffsetServer(many, further(1), 10) as server:
            questions = OffsetQuestions(server.address)
            assert questions.latest()["a topic with a name of some length"]["49999"] == 2**62 + 50_000
            questions.close()


class TestLostConnection:
    def test_is_made_again(self) -> None:
        with asking(further(1)) as (server, questions):
            questions.latest()
            server._server.hang_up()
            assert questions.latest() == {"t": {"0": 6, "1": 1}}

    def test_to_a_server_that_is_gone_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            OffsetQuestions(str(tmp_path / "none")).initial()


class TestPlanner:
    def test_can_be_pickled_and_repeats_the_answers(self) -> None:
        with OffsetServer(START, further(1)) as server:
            planner: Planner = pickle.loads(pickle.dumps(Planner(server.address)))
            initial, latest = planner.initialOffset(), planner.latestOffset()
            assert (initial, latest) == ({"t": {"0": 5, "1": 0}}, {"t": {"0": 6, "1": 1}})
            assert planner.partitions(initial, latest) == []
            planner.stop()

    def test_gives_equal_text_for_equal_offsets(self) -> None:
        """Spark compares the text to find out whether there is something new."""
        one, other = {("b", 2): 1, ("a", 10): 2, ("a", 9): 3}, {("a", 9): 3, ("b", 2): 1, ("a", 10): 2}
        assert json.dumps(by_topic(one)) == json.dumps(by_topic(other))
