"""`rampup cluster list|show|probe`: the places where runs can go, what is known of them, and a
draft for a new one."""

import json
import re
from typing import Any

import click
from msgspec import to_builtins

from rampup.cli import output
from rampup.cli.guesses import Subcommands
from rampup.cli.options import complete_cluster, json_option
from rampup.config import clusters
from rampup.errors import Refused

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}")
TAKEN = (clusters.AUTO, "local")


@click.group(
    cls=Subcommands,
    meanings={
        "ls": "rampup cluster list",
        "add": "rampup cluster probe --save NAME",
        "new": "rampup cluster probe --save NAME",
        "create": "rampup cluster probe --save NAME",
        "edit": "rampup cluster show NAME prints the file; edit that",
    },
)
def command() -> None:
    """List, show and draft cluster profiles."""


@command.command("list")
@json_option
def list_clusters(as_json: bool) -> int:
    """List all profiles; * marks those that fit this machine."""
    found = [describe(name) for name in clusters.names()]
    if as_json:
        output.emit_json(found)
        return 0
    head = ("cluster", "here", "scheduler", "launcher", "from", "about")
    output.table(head, [cells(row) for row in found], fold_last=True)
    output.next_step("rampup cluster show NAME", "rampup cluster probe")
    return 0


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    about = f"can't be read: {row['problem']}" if row["problem"] else row["about"]
    here = "*" if row["here"] else ""
    return (row["name"], here, row["scheduler"], row["launcher"], row["from"], about)


def describe(name: str) -> dict[str, Any]:
    """Describe one profile; a file that can't be read is reported, and hides no other."""
    file = clusters.files()[name]
    origin = "rampup" if file.parent == clusters.HERE else str(file)
    row: dict[str, Any] = {"name": name, "from": origin, "problem": None}
    try:
        cluster = clusters.read(file).cluster
    except Refused as error:
        unknown = dict.fromkeys(("scheduler", "launcher", "about"), "")
        return {**row, "here": False, **unknown, "problem": error.message}
    facts = {"scheduler": cluster.scheduler, "launcher": cluster.launcher, "about": cluster.about}
    return {**row, "here": clusters.fits(cluster), **facts}


@command.command("show")
@click.argument("name", shell_complete=complete_cluster)
@json_option
def show_cluster(name: str, as_json: bool) -> int:
    """Show one profile: every key, its value, and the file that sets it."""
    profile = clusters.find(name)
    rows = [
        {"key": key, "value": value, "origin": profile.origin(key)}
        for key, value in to_builtins(profile.cluster).items()
        if key != "name"
    ]
    if as_json:
        output.emit_json({"name": profile.cluster.name, "file": str(profile.file), "keys": rows})
        return 0
    output.write_whole(f"{output.paint(profile.cluster.name, output.BOLD)}: {profile.file}")
    table = [
        (key, format_value(value), row["origin"])
        for row in rows
        for key, value in flatten(row["key"], row["value"])
    ]
    output.table(("key", "value", "origin"), table)
    output.next_step(f"rampup doctor --on {profile.cluster.name}")
    return 0


def flatten(key: str, value: Any) -> list[tuple[str, Any]]:
    """Return a row for each key of a table."""
    if isinstance(value, dict) and value:
        return [(f"{key}.{inner}", found) for inner, found in value.items()]
    return [(key, value or None if isinstance(value, dict) else value)]


def format_value(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(format_value, value)) or "none"
    if isinstance(value, str):
        return value if value and value.isprintable() else json.dumps(value)
    return "none" if value is None else str(value).lower()


@command.command("probe")
@click.option("--save", metavar="NAME", help="Save it as a profile; then use it with --on NAME.")
@click.option("--force", is_flag=True, help="With --save: replace an existing profile.")
def probe(save: str | None, force: bool) -> int:
    """Draft a profile from this machine's Slurm; nothing is submitted."""
    from rampup.schedulers.slurm.draft import draft

    file = clusters.user_folder() / f"{save}.toml"
    if save is not None:
        check_name(save)
        if file.exists() and not force:
            raise Refused(
                f"profile {save} exists already: {file}",
                "choose another name, or add --force to replace it",
            )
    text = draft()
    if save is None:
        print(text, end="")
        output.next_step("rampup cluster probe --save NAME, then rampup doctor --on NAME")
        return 0
    from rampup.rundir.records import write_text

    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, text)
    except OSError as error:
        raise Refused(
            f"can't write {file}: {error.strerror}", "rampup cluster probe > FILE"
        ) from None
    output.write_whole(str(file))
    output.next_step(f"review it, then rampup doctor --on {save}")
    return 0


def check_name(name: str) -> None:
    if not NAME.fullmatch(name) or name in TAKEN:
        raise Refused(
            f"{name!r} can't be the name of a profile",
            "letters, digits, . _ and -; not auto or local",
        )
