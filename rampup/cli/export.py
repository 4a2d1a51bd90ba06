"""`rampup export`: the metrics of runs to where people keep theirs: a table, MLflow, W&B,
TensorBoard."""

import contextlib
import importlib
import importlib.util
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from msgspec import to_builtins

from rampup.cli import output
from rampup.cli.arguments import complete_run, dry_run_option, json_option
from rampup.errors import Refused, UsageError
from rampup.rundir.find import find_to_read

TRACKERS = ("csv", "mlflow", "wandb", "tensorboard")
FITTING = {
    "out": ("csv", "wandb", "tensorboard"),
    "tracking_uri": ("mlflow",),
    "project": ("mlflow", "wandb"),
}
"""Which option means something to whom."""


@click.command()
@click.argument("wanted", nargs=-1, shell_complete=complete_run, metavar="[RUN]...")
@click.option("--to", "tracker", type=click.Choice(TRACKERS), required=True, help="Where to.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="csv: the file (default, or -: stdout); wandb: the folder (./wandb); tensorboard: the folder (the run's tb/).",
)
@click.option(
    "--tracking-uri", metavar="URI", help="mlflow: the server (default: MLFLOW_TRACKING_URI)."
)
@click.option("--project", help="mlflow: the experiment, wandb: the project (default: rampup).")
@dry_run_option
@json_option
def command(
    wanted: tuple[str, ...],
    tracker: str,
    out: Path | None,
    tracking_uri: str | None,
    project: str | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """The metrics of runs, to a table or a tracker. RUN is an id or a directory (default: the
    latest).

    All attempts of a run are one story, and an export can be repeated: a tracker has each run once,
    each point once.
    """
    if tracker == "csv" and out == Path("-"):
        out = None
    check_options(tracker, out=out, tracking_uri=tracking_uri, project=project)
    if as_json and tracker == "csv" and out is None and not dry_run:
        raise UsageError("--json and the table both want stdout", "--out FILE for the table")
    from rampup.export.source import Target, read

    exporter: Any = importlib.import_module(f"rampup.export.{tracker}")
    check_packages(tracker, exporter.PACKAGES)
    target = Target(out, tracking_uri, project)
    where = exporter.destination(target)
    runs = list({run.path: run for run in map(find_to_read, wanted or (None,))}.values())
    sources = [read(run) for run in runs]
    check_ids(sources)
    if dry_run:
        return tell_plan(tracker, where, sources, as_json)
    sent: Sequence[Any] = ()
    with pipe_may_close() if tracker == "csv" else clean_stdout():
        sent = exporter.export(sources, target)
    if as_json:
        output.emit_json(
            {"to": tracker, "where": where, "runs": [to_builtins(each) for each in sent]}
        )
    elif where != "stdout":
        tell(tracker, where, sent)
    return 0


def check_options(tracker: str, **given: Any) -> None:
    for name, value in given.items():
        if value is not None and tracker not in FITTING[name]:
            option = f"--{name.replace('_', '-')}"
            raise UsageError(
                f"{option} means nothing to {tracker}",
                f"it is for --to {' or '.join(FITTING[name])}",
            )


def check_packages(tracker: str, packages: Sequence[str]) -> None:
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise Refused(
            f"an export to {tracker} needs the package {missing[0]}",
            f"pip install 'rampup[{tracker}]'",
        )


def check_ids(sources: Sequence[Any]) -> None:
    """By its id a tracker knows a run again: two of one id would become one."""
    found: dict[str, Any] = {}
    for source in sources:
        other = found.setdefault(source.id, source)
        if other is not source:
            both = f"{other.run.path} and {source.run.path}"
            raise Refused(
                f"two runs have the id {source.id}: {both}",
                "one is a copy: export the one that is meant",
            )


@contextlib.contextmanager
def pipe_may_close() -> Iterator[None]:
    """`| head` has seen enough: that is no failure."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


@contextlib.contextmanager
def clean_stdout() -> Iterator[None]:
    """Trackers and the programs that they start print what they like; stdout is ours."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def tell_plan(tracker: str, where: str, sources: Sequence[Any], as_json: bool) -> int:
    found = [
        {"id": source.id, "state": source.state, "rows": len(source.rows)} for source in sources
    ]
    if as_json:
        output.emit_json({"to": tracker, "where": where, "runs": found, "dry_run": True})
        return 0
    for run in found:
        rows = output.count(run["rows"], "row")
        output.say(f"would export {run['id']}, {run['state']}, {rows}, to {tracker}: {where}")
    return 0


def tell(tracker: str, where: str, sent: Sequence[Any]) -> None:
    for each in sent:
        changed = "known, replaced" if tracker == "wandb" else "known, added to"
        what = "new" if each.created else changed if each.written else "known, nothing new"
        if tracker in ("mlflow", "wandb"):
            output.say(f"{each.id}: {what}, {output.count(each.written, 'point')} written")
        if each.note:
            output.say(f"note: {each.id}: {each.note}")
    for place in dict.fromkeys(each.where for each in sent):
        print(place)
    output.next_step(next_of(tracker, where, sent))


def next_of(tracker: str, where: str, sent: Sequence[Any]) -> str:
    places = [each.where for each in sent]
    if tracker == "mlflow":
        served = where.startswith(("http://", "https://", "databricks"))
        return (
            f"look at {where}" if served else f"mlflow ui --backend-store-uri {shlex.quote(where)}"
        )
    if tracker == "wandb":
        return f"wandb sync {shlex.join(places)}"
    if tracker == "tensorboard":
        return f"tensorboard --logdir {shlex.quote(os.path.commonpath(places))}"
    return f"column -s, -t {shlex.quote(where)} | less -S"
