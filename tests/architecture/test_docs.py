"""Links resolve, examples are listed and tested, and pages mention nothing outside the project."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from source import ROOT

from fairway.spec.kind import KINDS
from fairway.spec.text.document import read_documents
from fairway.state.metric import LESS_IS_BETTER, MORE_IS_BETTER

PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")]
)
EXAMPLES = sorted(path.name for path in (ROOT / "examples").iterdir() if re.match(r"\d\d-", path.name))
LINK = re.compile(r"(?<!`)\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """Return the fragments of a page's headings, as code hosts generate them."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(text))
    return {heading.strip().replace(" ", "-") for heading in plain}


def broken_links(page: Path) -> list[str]:
    """Return the links of a page to files or headings that do not exist."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    broken = []
    for target in LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        place, _, fragment = target.partition("#")
        path = (page.parent / place).resolve() if place else page
        if not path.exists() or (fragment and path.suffix == ".md" and fragment not in anchors(path)):
            broken.append(target)
    return broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(page: Path) -> None:
    assert broken_links(page) == []


def test_a_broken_link_is_seen(tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text("# A `heading`, here\n")
    page = tmp_path / "page.md"
    page.write_text("[a](there.md) [b](there.md#a-heading-here) [c](gone.md) [d](there.md#gone) [e](https://example.org)\n")
    assert broken_links(page) == ["gone.md", "there.md#gone"]


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_is_listed_and_tested(example: str) -> None:
    listed = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs").rglob("*.md"))
    assert f"examples/{example}" in listed, f"no page under docs/ names examples/{example}"
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests" / "examples").rglob("*.py"))
    assert example in tests, f"no test under tests/examples runs {example}"


def test_every_command_of_the_readme_has_a_target() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {
        name for page in PAGES for name in re.findall(r"\bmake ([a-z-]+)\b", page.read_text(encoding="utf-8")) if "`" not in name
    }
    assert {"demo", "test", "bench", "check"} <= targets
    assert named & {"demo", "test", "bench", "check", "docs-reference"} <= targets


DOCUMENT = re.compile(r"```yaml\n(.*?)```", re.DOTALL)


BUILT = tuple(f"kind: {kind}" for kind in KINDS)


def has_document(text: str) -> bool:
    """Return whether the text holds a document of a supported kind."""
    return any(kind in text for kind in BUILT)


@pytest.mark.parametrize("page", [page for page in PAGES if has_document(page.read_text())], ids=lambda page: page.stem)
def test_every_document_on_a_page_is_sound(page: Path) -> None:
    documents = [text for text in DOCUMENT.findall(page.read_text(encoding="utf-8")) if has_document(text)]
    assert documents
    for text in documents:
        read_documents("\n---\n".join(part for part in text.split("\n---\n") if has_document(part)), page.name)


def test_the_reference_is_current() -> None:
    ended = subprocess.run(
        [sys.executable, ROOT / "scripts" / "reference", "--check"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr


def test_short_forms_mean_what_the_reference_says() -> None:
    reference = runpy.run_path(str(ROOT / "scripts" / "reference"))
    for short, long in reference["SHORT_FORMS"]:
        one, other = (read_documents(f"kind: TrainingJob\nname: a\n{text}")[0] for text in (short, long))
        assert one == other, short
    for short, long in reference["QUEUE_SHORT_FORMS"]:
        one, other = (read_documents(f"kind: JobQueue\nname: a\n{text}")[0] for text in (short, long))
        assert one == other, short
    for short, long in reference["SERVICE_SHORT_FORMS"]:
        one, other = (read_documents(f"kind: ModelService\nname: a\n{text}")[0] for text in (short, long))
        assert one == other, short


def test_the_words_that_say_what_is_better_are_listed() -> None:
    rows = re.findall(r"^\| (less|more) is better \| (.*) \|$", (ROOT / "docs" / "metrics.md").read_text(), re.MULTILINE)
    found = {way: {word.replace("_", "").lower() for word in re.findall("`([^`]+)`", words)} for way, words in rows}
    assert found == {"less": set(LESS_IS_BETTER), "more": set(MORE_IS_BETTER)}
