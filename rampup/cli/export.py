"""`rampup export`: the metrics of runs to where people keep theirs: a table, MLflow, W&B,
TensorBoard.

Each tracker is a module of rampup/export with the same few functions: see export/tracker.py.
"""

import contextlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click
from msgspec import to_builtins
from msgspec.structs import asdict

from rampup.cli import output
from rampup.cli.options import complete_run, dry_run_option, json_option, study_option
from rampup.cli.selection import select_to_read, title
from rampup.errors import Refused, UsageError

if TYPE_CHECKING:
    from rampup.export.tracker import Sent, Source, Target, Tracker

TRACKERS = ("csv", "mlflow", "wandb", "tensorboard", "mlperf")


@click.command()
@click.argument("wanted", nargs=-1, shell_complete=complete_run, metavar="[RUN]...")
@study_option("Export the runs of this study.")
@click.option(
    "--to", "tracker", type=click.Choice(TRACKERS), required=True, help="Format or tracker."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="csv: the file (default, or -: stdout); wandb: the folder (./wandb); tensorboard: the folder (the run's tb/); "
    "mlperf: the file, or a folder for several runs (the run's mlperf.log).",
)
@click.option(
    "--tracking-uri", metavar="URI", help="mlflow: the server (default: MLFLOW_TRACKING_URI)."
)
@click.option(
    "--project",
    metavar="NAME",
    help="mlflow: the experiment, wandb: the project (default: rampup).",
)
@dry_run_option
@json_option
def command(
    wanted: tuple[str, ...],
    study: str | None,
    tracker: str,
    out: Path | None,
    tracking_uri: str | None,
    project: str | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Export the metrics of runs to a table or a tracker. RUN is an id or its first letters, a job
    id, a name or a path (default: the latest run of this directory).

    All attempts of a run are merged into one history. You can repeat an export: what is there
    already is not written twice.
    """
    from rampup.export.tracker import Target, read_source

    exporter = load_tracker(tracker)
    target = Target(out, tracking_uri, project)
    check_options(tracker, exporter, target)
    check_packages(tracker, exporter.PACKAGES)
    where = exporter.destination(target)
    if as_json and where == "stdout" and not dry_run:
        raise UsageError(
            "--json and the table both go to stdout", "write the table to a file: --out FILE"
        )
    sources = [read_source(run) for run in select_to_read(wanted, study).runs()]
    check_ids(sources)
    if not as_json and study is None:
        output.say(", ".join(title(source.run) for source in sources))
    if dry_run:
        return show_plan(tracker, where, sources, as_json)
    sent: list[Sent] = []
    with pipe_may_close() if where == "stdout" else clean_stdout():
        sent = exporter.export(sources, target)
    if as_json:
        output.emit_json({"to": tracker, "where": where, "runs": to_builtins(sent)})
    elif where != "stdout":
        report_export(exporter, where, sent)
    return 0


def load_tracker(name: str) -> "Tracker":
    return cast("Tracker", importlib.import_module(f"rampup.export.{name}"))


def check_options(name: str, tracker: "Tracker", target: "Target") -> None:
    for field, value in asdict(target).items():
        if value is not None and field not in tracker.OPTIONS:
            others = [other for other in TRACKERS if field in load_tracker(other).OPTIONS]
            raise UsageError(
                f"--{field.replace('_', '-')} does not apply to --to {name}",
                f"use it with --to {' or '.join(others)}",
            )


def check_packages(tracker: str, packages: Sequence[str]) -> None:
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise Refused(
            f"an export to {tracker} needs the package {missing[0]}",
            f"pip install 'rampup[{tracker}]'",
        )


def check_ids(sources: "Sequence[Source]") -> None:
    """Refuse two runs of one id: a tracker recognises a run by it, and they would become one."""
    found: dict[str, Source] = {}
    for source in sources:
        other = found.setdefault(source.id, source)
        if other is not source:
            both = f"{other.run.path} and {source.run.path}"
            raise Refused(
                f"two runs have the id {source.id}: {both}",
                "one is a copy: give the path of the one to export",
            )


@contextlib.contextmanager
def pipe_may_close() -> Iterator[None]:
    """`| head` closes the pipe when it has enough: that is not a failure."""
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


def show_plan(tracker: str, where: str, sources: "Sequence[Source]", as_json: bool) -> int:
    if as_json:
        runs = [{"id": it.id, "state": it.state, "rows": len(it.rows)} for it in sources]
        output.emit_json({"to": tracker, "where": where, "runs": runs, "dry_run": True})
        return 0
    for source in sources:
        run = f"{source.id}, {source.state}, {output.count(len(source.rows), 'row')}"
        output.say(f"would export {run}, to {tracker}: {where}")
    return 0


def report_export(tracker: "Tracker", where: str, sent: "Sequence[Sent]") -> None:
    for each in sent:
        if tracker.CHANGED:
            known = tracker.CHANGED if each.written else "up to date"
            words = "new" if each.created else known
            output.say(f"{each.id}: {words}, {output.count(each.written, 'point')} written")
        if each.note:
            output.say(f"note: {each.id}: {each.note}")
    for place in dict.fromkeys(each.where for each in sent):
        output.write_whole(place)
    output.next_step(tracker.next_command(where, sent))
