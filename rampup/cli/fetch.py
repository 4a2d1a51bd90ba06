"""`rampup fetch`: bring a data set into the cache, on a machine that has internet. Without a name
it lists them."""

import sys
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from rampup.cli import output
from rampup.cli.options import dry_run_option, json_option
from rampup.datasets import fetch, sets
from rampup.datasets.sets import DataSet, known_sets, named
from rampup.errors import Refused, UsageError

BAR_WIDTH = 30


def complete_set(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    return [
        CompletionItem(data.name, help=data.about)
        for data in known_sets()
        if data.name.startswith(incomplete)
    ]


@click.command()
@click.argument("name", required=False, shell_complete=complete_set)
@click.option(
    "--from",
    "given",
    type=click.Path(path_type=Path),
    help="Folder or archive that contains the files.",
)
@dry_run_option
@json_option
def command(name: str | None, given: Path | None, dry_run: bool, as_json: bool) -> int:
    """Download a data set into the cache; without NAME, list the data sets."""
    if name is None:
        if given is not None:
            raise UsageError(
                f"--from needs the name of the data set in {given}",
                f"rampup fetch NAME --from {given}",
            )
        list_sets(as_json)
    elif dry_run:
        show_sources(named(name), given, as_json)
    else:
        fetch_set(named(name), given, as_json)
    return 0


def list_sets(as_json: bool) -> None:
    known = known_sets()
    states = {data.name: state_of(data.name) for data in known}
    if as_json:
        output.emit_json([describe(data, states[data.name]) for data in known])
        return
    rows = []
    for data in known:
        size = megabytes(data.size) if data.size else "-"  # what users have already
        rows.append((data.name, states[data.name], size, data.about))
    output.table(("data set", "state", "size", "about"), rows, right=frozenset({2}), fold_last=True)
    missing = [name for name, state in states.items() if state != "present"]
    output.next_step(f"rampup fetch {missing[0]}" if missing else f"rampup run {known[0].recipe}")


def state_of(name: str) -> str:
    """Return present, absent or damaged."""
    try:
        sets.folder(name)
    except Refused:
        return "absent"
    try:
        sets.check_files(name)
    except Refused:
        return "damaged"
    return "present"


def describe(data: DataSet, state: str) -> dict[str, object]:
    place = sets.cache_root() / data.name
    return {
        "name": data.name,
        "state": state,
        "bytes": data.size,
        "folder": str(place),
        "about": data.about,
    }


def show_sources(data: DataSet, given: Path | None, as_json: bool) -> None:
    from rampup.datasets.sources import list_sources

    labels = [source.label for source in list_sources(data, given)]
    state = state_of(data.name)
    if as_json:
        output.emit_json({**describe(data, state), "sources": labels})
        return
    output.write_whole(f"{data.name} is {state} in {sets.cache_root() / data.name}")
    output.write_whole(
        "it would be verified, and fetched again if a checksum is wrong"
        if state == "present"
        else "sources, in order:"
    )
    for label in labels:
        output.write_whole(f"  {label}")
    output.next_step(f"rampup fetch {data.name}")


def fetch_set(data: DataSet, given: Path | None, as_json: bool) -> None:
    with Bar(data.name) as bar:
        fetched = fetch.fetch(data.name, given, bar.say, bar.show)
    if as_json:
        output.emit_json({**describe(data, "present"), "source": fetched.source or None})
        return
    if fetched.source:
        origin = f"{megabytes(data.size)} from {fetched.source}"
        output.say(f"{data.name}: {origin}, verified, in {fetched.folder}")
    else:
        output.say(f"{data.name}: already here, verified, in {fetched.folder}")
    output.next_step(f"rampup run {data.recipe}")


def megabytes(size: int) -> str:
    return f"{size / 1e6:.0f} MB"


class Bar:
    """One line that is drawn again and again; nothing where stderr is not a terminal."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.drawn = -1

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def show(self, done: int, total: int) -> None:
        percent = 100 * done // total
        if percent == self.drawn or not sys.stderr.isatty():
            return
        self.drawn = percent
        filled = BAR_WIDTH * done // total
        bar = "#" * filled + "-" * (BAR_WIDTH - filled)
        line = f"\r{self.name} [{bar}] {percent:3d} % of {megabytes(total)}"
        print(line, end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self.drawn >= 0:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self.drawn = -1

    def say(self, line: str) -> None:
        self.clear()
        output.say(line)
