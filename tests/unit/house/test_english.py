"""Text that users read is plain English: patterns that betray a translation are not in it."""

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from rampup.cli.app import VERBS

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "rampup"
BETRAYING = (
    r"(?<!here )\b(is|are|was|were) no (?!longer\b|such\b)\w",
    r"\bgo(es)? on\b(?! this machine)",
    r"\b(going|went) on\b",
    r"\bone's own\b",
    r"\btold\b",
    r"\bshall\b",
    r"\bwho (starts|looks|runs|wants|asks|has|can|kills|sets|comes|reads|still|trains)\b",
    r"\b(in|out)side of\b",
    r"\bbelongs? into\b",
    r"\bin good order\b",
    r"\bsound (one|checkpoint)",
    r"\b(is|be|not|none) sound\b",
    r"\btook up\b",
    r"\b(left|leaves?|without) (no|a) word\b",
    r"\bin vain\b",
    r"\banew\b",
    r"\bby nature\b",
    r"\bas one story\b",
    r"\bfor ever\b",
    r"\blooks? on\b",
    r"\bwants to know\b",
    r"\bby heart\b",
    r"\b(optimizer|model) of now\b",
    r"\btells? (apart|how|what|why|it|of|the)\b",
    r"\btells classes\b",
    r"(^|\. )Of (two|several|many) [a-z]",
    r"\bfor there (is|are)\b",
    r"\b(no|last) word\b",
    r"\b(is|are|was|were) taken for\b",
    r"\bwhat (became|becomes|would become) of\b",
    r"\bin peace\b",
    r"\bso (many|much) (steps|time|pixels|epochs)\b",
)
PATTERN = re.compile("|".join(BETRAYING), re.IGNORECASE)
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`]*`")
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *PACKAGE.rglob("*.md")])


def find_bad(text: str) -> list[str]:
    plain = " ".join(text.split())
    return [plain[max(0, it.start() - 40) : it.end() + 20] for it in PATTERN.finditer(plain)]


def test_the_patterns_find_what_they_are_for() -> None:
    for bad in ("x is no file", "the run goes on", "a loop of one's own", "what shall run?"):
        assert find_bad(bad)
    for good in ("there is no file", "it is no longer there", "x is not a file"):
        assert not find_bad(good)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page(page: Path) -> None:
    assert find_bad(CODE.sub("`x`", FENCE.sub("", page.read_text()))) == []


def all_commands() -> Iterator[tuple[str, click.Command]]:
    for verb in VERBS:
        command = importlib.import_module(f"rampup.cli.{verb}").command
        yield verb, command
        if isinstance(command, click.Group):
            for name, inner in command.commands.items():
                yield f"{verb} {name}", inner


def test_help() -> None:
    bad = {
        name: find_bad(command.get_help(click.Context(command, info_name=name)))
        for name, command in all_commands()
    }
    assert {name: found for name, found in bad.items() if found} == {}
    assert find_bad(" ".join(VERBS.values())) == []


def read_literals(file: Path) -> Iterator[str]:
    """Yield the sentences of a module: literals of three words or more, docstrings left out."""
    tree = ast.parse(file.read_text())
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [it.value if isinstance(it, ast.Constant) else "X" for it in node.values]
            yield "".join(str(part) for part in parts)
        elif isinstance(node, ast.Constant) and id(node) not in docs:
            text = str(node.value)
            if text.count(" ") > 1:
                yield text


@pytest.mark.parametrize(
    "room", sorted({path.relative_to(PACKAGE).parts[0] for path in PACKAGE.rglob("*.py")})
)
def test_messages(room: str) -> None:
    """Errors, hints, notes, and the comments of job scripts."""
    place = PACKAGE / room
    bad: dict[str, list[str]] = {}
    for file in place.rglob("*.py") if place.is_dir() else [place]:
        found = [words for literal in read_literals(file) for words in find_bad(literal)]
        if found:
            bad[str(file.relative_to(ROOT))] = found
    assert bad == {}


@pytest.mark.parametrize(
    "file",
    sorted((PACKAGE / "templates").rglob("*.py")),
    ids=lambda file: str(file.relative_to(PACKAGE)),
)
def test_what_rampup_new_writes(file: Path) -> None:
    assert find_bad(file.read_text().replace("#", "")) == []


@pytest.mark.parametrize("name", ["rampup", "rampup.torch", "rampup.keras", "rampup.recipe"])
def test_the_help_of_public_names(name: str) -> None:
    """What `help()` and editors show."""
    if name == "rampup.keras":
        pytest.importorskip("tf_keras")
    module = importlib.import_module(name)
    docs = {name: inspect.getdoc(module) or ""}
    for exported in dir(module) if name == "rampup" else module.__all__:
        thing = getattr(module, exported)
        docs[exported] = inspect.getdoc(thing) or ""
        if inspect.isclass(thing):
            own = {key: each for key, each in vars(thing).items() if not key.startswith("_")}
            docs |= {f"{exported}.{key}": inspect.getdoc(each) or "" for key, each in own.items()}
    bad = {each: find_bad(text) for each, text in docs.items()}
    assert {each: found for each, found in bad.items() if found} == {}


@pytest.mark.parametrize(
    "file",
    sorted([*PACKAGE.rglob("*.toml"), *PACKAGE.rglob("*.html"), *PACKAGE.rglob("*.js")]),
    ids=lambda file: str(file.relative_to(ROOT)),
)
def test_other_files(file: Path) -> None:
    lines = file.read_text().splitlines()
    # a sign is what a program printed, perhaps an older rampup; an id is part of the JSON
    kept = [line for line in lines if not line.startswith(("signs.", "id =", "#"))]
    assert find_bad("\n".join(kept)) == []
