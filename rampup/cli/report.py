"""`rampup report`: one HTML file about one or more runs, with curves, time, machine, settings and
advice. Also written by itself after a run that was followed on a terminal."""

import os
import shlex
import socket
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rampup.cli import output
from rampup.cli.ending import relative_path
from rampup.cli.options import complete_run, json_option, study_option
from rampup.cli.selection import select_to_read, title
from rampup.errors import Refused
from rampup.rundir.files import RunDir
from rampup.rundir.trust import may_change, refuse_foreign

if TYPE_CHECKING:
    from rampup.report.build import Written
    from rampup.report.data import RunData
    from rampup.study.members import Study


@click.command()
@click.argument("wanted", nargs=-1, shell_complete=complete_run, metavar="[RUN]...")
@study_option("The runs of this study; if there are more than 12, only the best are drawn.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="File to write (default: report.html in the run, or here for several runs).",
)
@click.option(
    "--png",
    "png_folder",
    type=click.Path(path_type=Path),
    help="Also write each chart as a picture to this folder.",
)
@click.option("--open", "show", is_flag=True, help="Open it in the browser.")
@json_option
def command(
    wanted: tuple[str, ...],
    study: str | None,
    out: Path | None,
    png_folder: Path | None,
    show: bool,
    as_json: bool,
) -> int:
    """Write an HTML report about one or more runs. RUN is an id or its first letters, a job id, a
    name or a path (default: the latest run of this directory)."""
    from rampup.report.build import default_file, write_report

    selection = select_to_read(wanted, study)
    if selection.study is None:
        found = selection.runs()
        if out is None and len(found) == 1:
            refuse_foreign(found[0], "write into it: --out FILE for a report elsewhere")
        in_run = out is None and len(found) == 1
        written = write_report(found, out or default_file(found), png_folder, in_run=in_run)
    else:
        from rampup.cli.compare import study_report

        found, table = study_report(selection.study)
        if out is None:
            refuse_foreign_study(selection.study)
        file = out or selection.study.report_file
        written = write_report(found, file, png_folder, table, in_run=out is None)
    if as_json:
        output.emit_json(as_object(written))
        return 0
    if selection.study is None:
        output.say(", ".join(title(run) for run in found))
    report_notes(written.runs)
    for path in (written.file, *written.pngs):
        output.write_whole(str(path))
    if show and open_page(written.file):
        return 0
    output.next_step(how_to_open(written.file))
    return 0


def refuse_foreign_study(study: "Study") -> None:
    """Refuse to write into the folder of somebody else's study."""
    if study.folder.is_dir() and not may_change(study.folder):
        raise Refused(f"study {study.name} is not yours", "--out FILE for a report elsewhere")


def open_page(file: Path) -> bool:
    """Open a page in the browser; tell whether there is one to open it."""
    import webbrowser  # not for those who only write a report

    if not has_display() or not webbrowser.open(file.absolute().as_uri()):
        output.say("note: no browser can be opened here")
        return False
    return True


def has_display() -> bool:
    shown = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return sys.platform == "darwin" or bool(shown) or bool(os.environ.get("BROWSER"))


def how_to_open(file: Path) -> str:
    """Return the command that shows a page: over ssh it must be copied first."""
    if not has_display() and os.environ.get("SSH_CONNECTION"):
        path = shlex.quote(str(file.absolute()))
        return f"on your own machine: scp {socket.gethostname()}:{path} ."
    opener = "open" if sys.platform == "darwin" else "xdg-open"
    return f"{opener} {shlex.quote(str(file))}"


def report_notes(runs: "Sequence[RunData]") -> None:
    """Say what is missing, and the notes; what several runs have in common is said once."""
    for data in runs:
        for words in data.missing:
            output.say(f"note: {data.run.id}: {words}")
    counts = Counter(note.id for data in runs for note in data.notes)
    first = {note.id: (data, note) for data in reversed(runs) for note in data.notes}
    for kind, (data, note) in first.items():
        others = f", and {output.count(counts[kind] - 1, 'other')}" if counts[kind] > 1 else ""
        output.say(f"note: {data.run.id}{others}: {note.about}: {note.remedy}")


def write_after_run(run: RunDir) -> None:
    """Write the report of a run that somebody followed to its end, where it can be drawn. What goes
    wrong is only a note."""
    from rampup.report.build import missing_packages, write_report

    if missing_packages() or not may_change(run.path):
        return
    try:
        written = write_report([run], run.report_file, in_run=True)
    except BaseException as error:
        # Ctrl-C too, and a panic of vl-convert: how the run went is what counts
        output.say(f"note: no report was made: {str(error) or type(error).__name__}")
        return
    output.say_whole(f"report: {relative_path(written.file)}")


def as_object(written: "Written") -> dict[str, Any]:
    return {
        "report": str(written.file),
        "bytes": written.size,
        "png": [str(path) for path in written.pngs],
        "runs": [
            {
                "id": data.run.id,
                "state": data.state.name,
                "missing": data.missing,
                "notes": [note._asdict() for note in data.notes],
            }
            for data in written.runs
        ],
    }
