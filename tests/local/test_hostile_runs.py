"""Hostile run directories through every verb that takes a run: nothing outside changes, nothing
hangs, nothing breaks, and no terminal is told anything."""

import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hostile import directories
from hostile.terminal import call, read_tree

from rampup.diagnose.why.explain import explain
from rampup.report import vega
from rampup.report.build import write_report
from rampup.rundir.damage import find_damage
from rampup.rundir.files import RunDir
from rampup.rundir.history import read_attempts
from rampup.runs.state import state_of
from rampup.runs.summary import describe

OTHER = 65534
READERS = (
    ("show",),
    ("show", "--all"),
    ("show", "--history"),
    ("show", "--checkpoints", "--verify"),
    ("why",),
    ("logs",),
    ("logs", "-n", "3"),
    ("logs", "--json"),
    ("report", "--out", "{out}/page.html"),
    ("report",),
    ("export", "--to", "csv"),
    ("export", "--to", "tensorboard"),
    ("export", "--to", "mlperf"),
    ("wait", "--timeout", "0"),
)
CHANGERS = (
    ("clean", "--dry-run"),
    ("cancel", "--save"),
    ("cancel",),
    ("clean",),
    ("clean", "--all"),
    ("resume", "--dry-run"),
)


class Scene:
    """A runs root, and files of the reader beside it that no run may touch."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root, self.outside = folder, folder / "runs", folder / "outside"
        self.root.mkdir()
        precious = self.outside / "folder"
        (precious / "1").mkdir(parents=True)
        (precious / "step-5").mkdir()
        (self.outside / "thesis.tex").write_text("years of work\n")
        for name in ("precious", "1/attempt.json", "1/metrics.jsonl", "step-5/manifest.json"):
            (precious / name).write_text('{"step": 1, "secret": "of the reader"}\n')
        self.sleeper = subprocess.Popen(["sleep", "3600"])

    def close(self) -> None:
        assert self.sleeper.poll() is None, "a process that a run names was ended"
        self.sleeper.kill()
        self.sleeper.wait()


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    for name in ("STATE", "CONFIG", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.setenv("RAMPUP_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(vega, "script_bundle", lambda: "/* bundle */")
    monkeypatch.chdir(tmp_path)
    made = Scene(tmp_path)
    yield made
    made.close()


def give_away(run: RunDir) -> None:
    for folder, folders, files in os.walk(run.path):
        for name in (*folders, *files):
            if os.lstat(os.path.join(folder, name)).st_nlink == 1 or name in folders:
                os.lchown(os.path.join(folder, name), OTHER, OTHER)
    os.chown(run.path, OTHER, OTHER)


def attack(scene: Scene, numbers: range) -> None:
    """Build these directories, every second one of somebody else, and call every verb on each."""
    faults: list[str] = []
    codes: Counter[str] = Counter()
    runs = [directories.make(scene.root, number, scene.outside) for number in numbers]
    for run in runs[1::2] if os.geteuid() == 0 else []:
        give_away(run)
    before = read_tree(str(scene.outside))
    foreign = {run.path: read_links(run.path) for run in runs[1::2]}
    slowest = 0.0
    for words in (("list", "--all"), ("list", "--columns", "lr"), ("list", "--all", "--json")):
        called = call(*words)
        faults += [f"{words}: {fault}" for fault in called.find_faults()]
        assert called.code == 0, called
    for run in runs:
        for verb, *options in (*READERS, *CHANGERS):
            words = [option.format(out=scene.folder) for option in options]
            called = call(verb, str(run.path), *words)
            slowest = max(slowest, called.cpu_s)
            codes[f"{verb}: {called.code}"] += 1
            faults += [
                f"{run.id} {verb} {words}: {fault}"
                for fault in called.find_faults(is_log=verb == "logs")
            ]
        if read_tree(str(scene.outside)) != before:
            faults.append(f"{run.id}: something outside has changed")
            break
    for path, links in foreign.items() if os.geteuid() == 0 else ():
        now = read_links(path)
        changed = {name for name in links.keys() | now.keys() if links.get(name) != now.get(name)}
        faults += [f"a foreign run was changed: {name}" for name in sorted(changed)]
    print(f"{len(runs)} directories, slowest call {slowest:.2f} s of CPU, {dict(codes)}")
    assert not faults, f"{len(faults)} faults\n" + "\n".join(faults[:12])


def read_links(folder: Path) -> dict[str, tuple[int, ...]]:
    """Return what would show any change in a run directory, without reading its files."""
    found = {}
    for root, folders, files in os.walk(folder):
        for name in (*folders, *files):
            facts = os.lstat(os.path.join(root, name))
            found[os.path.join(root, name)] = (facts.st_ino, facts.st_size, facts.st_mtime_ns)
    return found


def test_sixty_hostile_directories(scene: Scene) -> None:
    """It takes about 20 s: 1,200 calls."""
    attack(scene, range(60))


@pytest.mark.slow
def test_five_hundred_hostile_directories(scene: Scene) -> None:
    attack(scene, range(60, 560))


# what held when it was attacked by hand, and has to go on holding -----------------------------------


def test_every_record_may_hold_anything(scene: Scene) -> None:
    """Every file with every odd content, read by all that `list`, `show` and `why` are made of."""
    run = RunDir(scene.root / "20261117-010101-nice-abc234")
    run.path.mkdir()
    directories.write_sound(run)
    spellings = [json.dumps(value).encode() for value in directories.VALUES]
    readings = 0
    for path, rows in directories.records_of(run).items():
        whole = path.read_bytes()
        odd_rows = [
            json.dumps({**rows[-1], key: value}).encode()
            for key, value in zip(rows[-1], directories.VALUES, strict=False)
        ]
        for data in (*directories.BYTES, *spellings, *odd_rows):
            path.write_bytes(data)
            state = state_of(run)
            describe(run), explain(run, state), find_damage(run), read_attempts(run), run.jobs()
            readings += 1
        path.write_bytes(whole)
    assert readings > 286


XSS = (
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "' onmouseover='alert(1)",
    "<!--<script>",
    "]]><iframe src=javascript:alert(1)>",
    "</style><style>*{display:none}",
    "</title><meta http-equiv=refresh content=0;url=//evil>",
    "&lt;img src=x onerror=alert(1)&gt;",
    "\u2028alert(1)\u2029",
    "{{constructor.constructor('alert(1)')()}}",
    "datum['x'] + alert(1)",
)


@pytest.mark.parametrize("payload", XSS)
def test_no_text_of_a_run_is_a_part_of_the_page(scene: Scene, payload: str) -> None:
    """Nineteen places for each: all texts that the report shows."""
    run = RunDir(scene.root / "20261117-010101-nice-abc234")
    run.path.mkdir()
    directories.write_sound(run)
    plain = scene.folder / "plain.html"
    write_report([run], plain)
    for path, rows in directories.records_of(run).items():
        spoiled = [{key: spoil(value, payload) for key, value in row.items()} for row in rows]
        if path == run.attempt(1).metrics_file:
            spoiled = [{**row, f"val_{payload}": 0.5, payload: 0.5} for row in rows]
        directories.write(path, spoiled)
    run.attempt(1).rank_log(0).write_text(f"{payload}\n", encoding="utf-8")
    written = scene.folder / "page.html"
    write_report([run], written)
    found, usual = Elements(written), Elements(plain)
    assert found.scripts == usual.scripts and found.risky == usual.risky == set()
    assert found.tags <= usual.tags | {"li", "p", "pre", "table", "tr", "td", "th", "h2", "details"}


def spoil(value: Any, payload: str) -> Any:
    if isinstance(value, dict):
        return {f"{key}{payload}": spoil(each, payload) for key, each in value.items()} | value
    return f"{value}{payload}" if isinstance(value, str) and value not in KEPT else value


KEPT = ("failed", "engine", "start", "end", "submitted", "slurm", "local", "torch")


class Elements(HTMLParser):
    """The elements of a page, and those attributes that can run something."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.risky: set[str] = set()
        self.scripts = 0
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.scripts += tag == "script"
        names = {name for name, _ in attrs if name.startswith("on") or name == "srcdoc"}
        links = {str(value) for name, value in attrs if name in ("src", "href")}
        self.risky |= names | {link for link in links if not link.startswith("#")}
        self.risky |= {tag} & {"iframe", "object", "embed", "base"}
