"""`rampup new`: create a small project that is ready to run. It copies a folder of
rampup/templates, nothing else."""

import shlex
from pathlib import Path

import click

from rampup.cli import output
from rampup.cli.options import dry_run_option
from rampup.config.resolve import clean_name
from rampup.errors import Refused

TEMPLATES = Path(__file__).parent.parent / "templates"
ENGINES = ("loop", "lightning", "keras")


@click.command()
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--engine",
    type=click.Choice(ENGINES),
    default=ENGINES[0],
    help="What to train with: a custom loop (the default), a LightningModule, or a Keras model.",
)
@dry_run_option
def command(directory: Path, engine: str, dry_run: bool) -> int:
    """Create a small project that is ready to run: a program, its settings, and a test.

    \b
    rampup new my-project
    cd my-project && rampup run
    rampup new my-module --engine lightning
    """
    files = sorted(path for path in (TEMPLATES / engine).iterdir() if path.is_file())
    check_place(directory)
    for file in files:
        output.write_whole(str(directory / file.name))
        if not dry_run:
            write(directory, file)
    if not dry_run:
        output.next_step(f"cd {shlex.quote(str(directory))} && rampup run")
    return 0


def check_place(directory: Path) -> None:
    """Refuse a place where something would be overwritten."""
    if directory.exists() and not directory.is_dir():
        raise Refused(f"{directory} is a file", "give a directory that does not exist yet")
    if directory.is_dir() and any(directory.iterdir()):
        raise Refused(
            f"{directory} is not empty", "give a directory that does not exist yet, or an empty one"
        )


def write(directory: Path, template: Path) -> None:
    name = clean_name(directory.absolute().name)
    text = template.read_text(encoding="utf-8").replace("NAME", name)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / template.name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise Refused(
            f"can't write {directory / template.name}: {error.strerror}", "choose another place"
        ) from None
