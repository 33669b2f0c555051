"""What records, servers and settings say is shown, and never obeyed: by no terminal, and by no page."""

import ast
import io
import json
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lakehouse_ingest.cli.verbs.top import ask, frame
from lakehouse_ingest.environment.terminal import Terminal, say
from lakehouse_ingest.errors import TryAgain, fitted
from lakehouse_ingest.observe.events import BatchLanded, SchemaChanged
from lakehouse_ingest.observe.health import State
from lakehouse_ingest.observe.watch import Watch
from lakehouse_ingest.printable import all_printable, many, printable
from lakehouse_ingest.settings import HealthSettings
from telemetry import OFF, Event
from tests.services.command import on_a_terminal
from tests.unit.catalog_package.test_errors import after_connecting, serving

ROOT = Path(__file__).parents[2]
TITLE, CLIPBOARD, CLEAR = "\x1b]0;OWNED\x07", "\x1b]52;c;T1dORUQ=\x07", "\x1b[2J\x1b[H"
ATTACK = f"{TITLE}{CLIPBOARD}{CLEAR}\x9b31m\u202egnp.exe\u2066\u200f\ud800\r\x08[/x] [red]:skull:"
STEERING = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def steers(text: str) -> set[str]:
    """What of it is not just seen: for a terminal lines and tabs are no steering."""
    return {each for each in text.replace("\n", "").replace("\t", "") if unicodedata.category(each) in STEERING}


@dataclass(frozen=True, kw_only=True)
class Hostile(Event, name=ATTACK, level="error"):
    stream: str
    error: str


@contextmanager
def attacked() -> Iterator[str]:
    """The page of a pipeline whose records, brokers and catalog say whatever they like."""
    watch = Watch("plant-7", OFF)
    with watch.serving(HealthSettings(port=0), {"source": ATTACK, "streams": {ATTACK: ATTACK}}) as url:
        watch.board.expect([ATTACK, "shop-[a-z]+"])
        watch.report(ATTACK, State.WAITING, TryAgain(ATTACK))
        for name in (ATTACK, "shop-[a-z]+"):
            watch.emit(
                BatchLanded(stream=name, batch=1, received=1, duration_s=1.0, landed={ATTACK: 1}, dead={ATTACK: 1})
            )
        watch.emit(SchemaChanged(table=ATTACK, changes=[ATTACK]))
        watch.table(ATTACK, rows=1, files=1, size=1, snapshots=1, partitions=1)
        watch.emit(Hostile(stream=ATTACK, error=ATTACK))
        letter = {
            "topic": ATTACK,
            "partition": 0,
            "offset": 0,
            "told": ATTACK,
            "value": ATTACK.encode("utf-8", "replace"),
        }
        watch.dead(ATTACK, {ATTACK: letter}, ())
        yield f"{url}/status.json"


class _Says(BaseHTTPRequestHandler):
    told: bytes

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.told)

    def log_message(self, *_: object) -> None:
        pass


class TestPrintableText:
    @given(st.text())
    def test_has_no_control_characters_and_loses_nothing(self, text: str) -> None:
        line, lines = printable(text), printable(text, lines=True)
        assert not steers(line)
        assert not steers(lines)
        assert "\n" not in line
        assert lines.count("\n") == text.count("\n")
        assert printable(line) == line
        assert {each for each in text if each.isprintable()} <= {*line}

    def test_leaves_what_people_write_as_it_is(self) -> None:
        for text in ("größe 漢字 é — “x”", "1\u202f234\u00a0€", "[not] :markup:", "back\\slash"):
            assert printable(text) == text
        assert printable("\x1b[2J") == "\\x1b[2J"
        assert printable("a\r\nb\u2028c") == "a b c"
        assert all_printable({"a\u202eb": ["\x07", 1, None, ("\x9b",)]}) == {"a\\u202eb": ["\\x07", 1, None, ["\\x9b"]]}

    def test_of_a_message_is_one_line_of_bounded_length(self) -> None:
        said = fitted(f"the catalog says {ATTACK}\nlakehouse-ingest: all is well; {'x' * 300}; see the log")
        assert not steers(said)
        assert "\n" not in said
        assert len(said) <= 200
        assert said.endswith("; see the log")

    @pytest.mark.parametrize(
        ("count", "words", "read"),
        [
            (0, ("row",), "0 rows"),
            (1, ("row",), "1 row"),
            (1_000, ("row",), "1,000 rows"),
            (1, ("batch", "batches"), "1 batch"),
            (2, ("batch", "batches"), "2 batches"),
        ],
    )
    def test_of_a_count_has_the_right_form_of_its_noun(self, count: int, words: tuple[str, ...], read: str) -> None:
        assert many(count, *words) == read


class TestTerminal:
    def test_shows_escapes_and_markup_instead_of_obeying_them(self, capsys: pytest.CaptureFixture[str]) -> None:
        """As text, as a cell, as a title; a name with brackets or colons is not read as markup."""
        screen = io.StringIO()
        console = Terminal(file=screen, width=200, force_terminal=True)
        table = Table(title=ATTACK)
        table.add_column(ATTACK)
        table.add_row(ATTACK)
        table.add_row(Text(ATTACK, style="red"))
        for each in (ATTACK, Text(ATTACK), table):
            console.print(each)
        shown = screen.getvalue()
        for raw in ("\x1b]", "\x07", "\x1b[2J", "\x9b", "\u202e", "\u2066", "\ud800", "\x08"):
            assert raw not in shown
        table = Table(title="[/x] [red]:skull:")
        table.add_row("shop-[a-z]+ [/x] [red]:skull:")
        console.print(table)
        assert screen.getvalue().removeprefix(shown).count("[/x] [red]:skull:") == 2
        say(ATTACK)
        assert not steers(capsys.readouterr().out)

    def test_is_reached_in_no_other_way(self) -> None:
        """Whoever prints, prints by `say` or on a `Terminal`."""
        ways = {"print", "echo", "secho", "Console", "print_exc", "rprint", "get_console"}
        for path in sorted((ROOT / "lakehouse_ingest").rglob("*.py")):
            if path.name == "terminal.py":
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call):
                    called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
                    on_a_console = isinstance(node.func, ast.Attribute) and called == "print"
                    assert called not in ways or on_a_console, f"{path.name} line {node.lineno}: {called}"
                    given = {each.arg for each in node.keywords}
                    assert "markup" not in given or path.name == "progress.py", f"{path.name} line {node.lineno}"
                    assert called != "Live" or "console" in given, f"{path.name} line {node.lineno}"

    def test_gets_no_escapes_from_an_answer_of_a_server(self) -> None:
        """A catalog whose refusals steer terminals."""

        def answer(_: Any) -> tuple[int, str]:
            return 403, json.dumps({"error": {"message": f"No{ATTACK}", "type": f"Forbidden{TITLE}", "code": 403}})

        with serving(after_connecting(answer)) as uri:
            words = ("--topics", "t", "--catalog-uri", uri)
            code, got = on_a_terminal("--debug", "status", *words)
        assert code
        assert b"Traceback" in got
        assert got.count(b"OWNED") > 1, "in the stack and in the sentence"
        for raw in (b"\x1b]", b"\x07", b"\x1b[2J", b"\x9b31m"):
            assert raw not in got, got


class TestStatusPage:
    def test_gets_no_control_characters(self) -> None:
        """Not even a mark for text from right to left: the page writes text as text, and a browser obeys those."""
        with attacked() as page:
            told = json.dumps(ask(page), ensure_ascii=False)
        assert "OWNED" in told
        assert not steers(told)


class TestTop:
    def test_shows_escapes_and_markup_of_any_page(self) -> None:
        """Also of one that is not ours: a plain Console of rich's draws it as ours does."""
        with attacked() as page:
            told: Any = ask(page)
        whole = json.loads(json.dumps(told).replace("plant-7", "@").replace(json.dumps(printable(ATTACK))[1:-1], "@"))
        hostile = json.loads(json.dumps(whole).replace("@", json.dumps(ATTACK)[1:-1]))
        for kind in (Console, Terminal):
            screen = io.StringIO()
            kind(file=screen, width=400, force_terminal=True).print(frame(hostile, f"http://x/{ATTACK}", ATTACK))
            shown = screen.getvalue()
            for raw in ("\x1b]", "\x07", "\x1b[2J", "\x9b", "\u202e", "\ud800"):
                assert raw not in shown
            assert "shop-[a-z]+" in shown
            assert shown.count("[/x] [red]:skull:") >= 9

    def test_on_a_real_terminal_obeys_no_page(self) -> None:
        with attacked() as page:
            told = json.dumps(ask(page)).replace("plant-7", json.dumps(ATTACK)[1:-1])
        server = HTTPServer(("127.0.0.1", 0), type("Says", (_Says,), {"told": told.encode()}))
        Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            code, got = on_a_terminal("top", "--once", "--url", f"http://127.0.0.1:{server.server_address[1]}")
        finally:
            server.shutdown()
            server.server_close()
        assert code == 0, got
        assert b"OWNED" in got
        for raw in (b"\x1b]", b"\x07", b"\x1b[2J"):
            assert raw not in got
