"""Every link between our pages leads somewhere, to a file and to a heading in it."""

from pathlib import Path

import pytest

from tests.docs.markdown import anchors, broken

ROOT = Path(__file__).parents[2]
FOLDERS = ("docs", "deploy", "catalog", "telemetry", "tests")
PAGES = sorted({*ROOT.glob("*.md"), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.md"))})
# Pages that others link to already and that are still to be written. The list only shrinks.
NOT_WRITTEN = set[str]()
TEXTS = {path: path.read_text(encoding="utf-8") for path in PAGES}


class TestLinks:
    @pytest.mark.parametrize("name", [path.relative_to(ROOT).as_posix() for path in PAGES])
    def test_of_a_page_lead_somewhere(self, name: str) -> None:
        path = ROOT / name
        found = [f"{name} {each}" for each in broken(path, TEXTS[path], TEXTS)]
        assert [each for each in found if not any(Path(page).name in each for page in NOT_WRITTEN)] == []

    def test_to_pages_not_yet_written_are_the_only_exceptions(self) -> None:
        assert [page for page in NOT_WRITTEN if (ROOT / page).exists()] == [], "take it off NOT_WRITTEN"

    @pytest.mark.parametrize(
        ("text", "wrong"),
        [
            ("# A title\n\n[there](#a-title)", []),
            ("[nowhere](#b)", ["line 1: #b leads to no heading of x.md"]),
            ("\n[gone](gone.md)", ["line 2: gone.md leads to no file"]),
            ("```\n[code](gone.md)\n```", []),
            ("[outside](https://example.com/gone.md)", []),
            ("![picture](gone.png)", ["line 1: gone.png leads to no file"]),
            ("[folder](..)", []),
        ],
    )
    def test_that_are_broken_are_found_with_their_line(self, text: str, wrong: list[str], tmp_path: Path) -> None:
        path = tmp_path / "x.md"
        path.write_text(text, encoding="utf-8")
        assert [*broken(path, text, {})] == wrong

    def test_use_the_anchors_of_github(self) -> None:
        text = '# One: `two`, three\n## Same\n## Same\n<a id="here"></a>\n```\n# no heading\n```\n'
        assert anchors(text) == {"one-two-three", "same", "same-1", "here"}
