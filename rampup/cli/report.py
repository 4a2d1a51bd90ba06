"""`rampup report`: one HTML file about one or more runs, with curves, time, machine, settings and advice."""

import shlex
import sys
from pathlib import Path
from typing import Any

import click

from rampup import runs
from rampup.cli import output
from rampup.cli.arguments import complete_run, json_option
from rampup.rundir import RunDir


@click.command()
@click.argument("wanted", nargs=-1, shell_complete=complete_run, metavar="[RUN]...")
@click.option(
    "--out", type=click.Path(path_type=Path), help="The file; default: report.html in the run, or here for several."
)
@click.option(
    "--png", "png_folder", type=click.Path(path_type=Path), help="Write each chart as a picture into this folder too."
)
@json_option
def command(wanted: tuple[str, ...], out: Path | None, png_folder: Path | None, as_json: bool) -> int:
    """One HTML file about one or more runs. RUN is an id, a prefix of one, or a directory (default: the latest)."""
    from rampup.report.build import Written, default_file, write_report

    found = list({run.path: run for run in map(runs.find_to_read, wanted or (None,))}.values())
    written: Written = write_report(found, out or default_file(found), png_folder)
    if as_json:
        output.emit_json(as_object(written))
        return 0
    for story in written.stories:
        for words in story.missing:
            output.say(f"note: {story.run.id}: {words}")
        for note in story.notes:
            output.say(f"note: {story.run.id}: {note.about}: {note.remedy}")
    for path in (written.file, *written.pngs):
        print(path)
    output.next_step(f"{'open' if sys.platform == 'darwin' else 'xdg-open'} {shlex.quote(str(written.file))}")
    return 0


def make_by_itself(run: RunDir) -> None:
    """After a run that somebody looked at, where it can be drawn. What goes wrong is a note, and no more than that."""
    from rampup.report.build import missing_packages, write_report

    if missing_packages():
        return
    try:
        written = write_report([run], run.report_file)
    except BaseException as error:  # Ctrl-C too, and a panic of vl-convert: how the run went is what counts
        output.say(f"note: no report was made: {str(error) or type(error).__name__}")
        return
    output.say(f"report: {written.file}")


def as_object(written: Any) -> dict[str, Any]:
    return {
        "report": str(written.file),
        "bytes": written.size,
        "png": [str(path) for path in written.pngs],
        "runs": [
            {
                "id": story.run.id,
                "state": story.state.name,
                "missing": story.missing,
                "notes": [note._asdict() for note in story.notes],
            }
            for story in written.stories
        ],
    }
