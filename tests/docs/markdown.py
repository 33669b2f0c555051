"""What tests ask of a page: its prose, its links, and the anchors that others may link to."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

CODE_SPAN = re.compile(r"`[^`\n]+`")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
LINK = re.compile(r"\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)")
TARGET = re.compile(r"\]\([^)\s]+\)")
HEADING = re.compile(r"^#{1,6} +(.*?) *$", re.MULTILINE)
ANCHOR = re.compile(r"<a (?:id|name)=\"([^\"]+)\"")
EXTERNAL = re.compile(r"[a-z]+:")


def blank(pattern: re.Pattern[str], text: str) -> str:
    """The text without what matches, every other character where it was."""
    return pattern.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


def prose(text: str) -> str:
    """Without names that are code, and without the targets of links; fenced blocks stay, for people read output."""
    return blank(TARGET, blank(CODE_SPAN, text))


def links(text: str) -> Iterator[tuple[int, str]]:
    """Every link to a file or an anchor of ours, with its line."""
    shown = blank(COMMENT, blank(FENCE, text))
    for found in LINK.finditer(shown):
        if not EXTERNAL.match(found[1]):
            yield shown.count("\n", 0, found.start()) + 1, found[1]


def anchors(text: str) -> set[str]:
    """As GitHub makes them of headings, and those that are written out."""
    shown = blank(FENCE, text)
    seen: Counter[str] = Counter()
    found = set(ANCHOR.findall(shown))
    for heading in HEADING.findall(shown):
        slug = slug_of(heading)
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


def slug_of(heading: str) -> str:
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def broken(path: Path, text: str, texts: dict[Path, str]) -> Iterator[str]:
    """What is wrong with the links of a page, a line each; `texts`: of the other pages, by path."""
    for line, link in links(text):
        target, _, anchor = link.partition("#")
        there = (path.parent / target).resolve() if target else path
        if not there.exists():
            yield f"line {line}: {link} leads to no file"
        elif anchor and there.suffix == ".md":
            known = anchors(text if there == path else texts.get(there) or there.read_text(encoding="utf-8"))
            if anchor not in known:
                yield f"line {line}: {link} leads to no heading of {there.name}"
