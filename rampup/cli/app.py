"""The command line: each verb is a file in this folder, imported when it is used. Every error ends
here, in one place."""

import errno
import importlib
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from rampup import __version__
from rampup.cli import output
from rampup.errors import RampupError, UsageError, nearest

VERBS = {
    "run": "Train a recipe, a file of settings, or any command.",
    "sweep": "Start one run for every combination of settings.",
    "new": "Create a small project that is ready to run.",
    "list": "List runs, newest first.",
    "show": "Show one run: state, settings, metrics, time.",
    "logs": "Print the output of a rank.",
    "report": "Write an HTML report about one or more runs.",
    "export": "Export metrics to a table, MLflow, W&B or TensorBoard.",
    "wait": "Wait until runs end; the exit code says how they ended.",
    "why": "Explain why a run ended, and what to do.",
    "cancel": "Stop runs.",
    "resume": "Resume runs from their newest valid checkpoints.",
    "drill": "Inject faults into a run and prove that it recovers.",
    "clean": "Delete checkpoints that are no longer needed.",
    "recipe": "List and show recipes: what can be trained.",
    "fetch": "Download a data set into the cache.",
    "doctor": "Check this machine or a cluster.",
    "cluster": "List, show and draft cluster profiles.",
    "sandbox": "Run a real Slurm of several nodes on this machine.",
    "completion": "Set up tab completion for your shell.",
}

ALIASES = {
    "ls": ("list",),
    "ps": ("list",),
    "status": ("show",),
    "stop": ("cancel",),
    "kill": ("cancel",),
    "tail": ("logs", "-f"),
}
"""Verbs of other tools that mean the same here. `--help` does not list them."""
MEANINGS = {
    "rm": "rampup clean RUN frees its checkpoints; `rampup show RUN` prints the directory",
    "delete": "rampup clean RUN frees its checkpoints; `rampup show RUN` prints the directory",
    "version": "rampup --version",
    "init": "rampup new DIRECTORY",
    "submit": "rampup run RECIPE --on CLUSTER",
    "compare": "rampup report RUN RUN, or rampup list --columns lr,val_accuracy",
    "open": "rampup report RUN --open",
    "top": "rampup list --state running",
    "queue": "rampup list --state pending",
}
"""Verbs of other tools, and what to type here."""


class Verbs(click.Group):
    """Lists the verbs of the table above and imports only the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        first, rest = args[:1], args[1:]
        if first == ["help"]:
            args = [*rest, "--help"]
        elif first and first[0] in ALIASES:
            args = [*ALIASES[first[0]], *rest]
        return super().parse_args(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command = importlib.import_module(f"rampup.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in VERBS and not args[0].startswith("-"):
            hint = MEANINGS.get(args[0]) or nearest(args[0], VERBS)
            raise UsageError(f"unknown command {args[0]!r}", hint)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


@click.group(
    cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="rampup")
def cli() -> None:
    """From one laptop core to many cluster nodes, with one command.

    \b
    rampup run digits                      train something real, now
    rampup run -- python train.py          any command gets a run, ranks, logs
    """


def split_command(argv: Sequence[str]) -> tuple[list[str], tuple[str, ...] | None]:
    """Split off the user's own command, which follows `--`. click would drop the `--`, and with it
    where the command begins."""
    words = list(argv)
    if words[:1] in (["run"], ["sweep"], ["drill"]) and "--" in words:
        at = words.index("--")
        return words[:at], tuple(words[at + 1 :])
    return words, None


def restyle(error: click.ClickException, words: Sequence[str]) -> RampupError:
    """Return click's own error in the style of all others: a message and a hint."""
    from rampup.cli.guesses import suggest_option  # only a mistake pays for it

    context = error.ctx if isinstance(error, click.UsageError) else None
    verb = [word for word in words[:1] if word in VERBS]  # an error of the parser has no context
    path = context.command_path if context else " ".join(["rampup", *verb])
    # click lists choices one below the other
    message, hint = " ".join(error.format_message().split()).rstrip("."), f"{path} --help"
    if isinstance(error, click.NoSuchOption):
        message = f"no such option: {error.option_name}"
        hint = suggest_option(error) or f"{hint} lists the options"
    styled = UsageError(message[:1].lower() + message[1:], hint)
    styled.exit_code = error.exit_code
    return styled


def main() -> None:
    words, command = split_command(sys.argv[1:])
    try:
        code = cli.main(words, prog_name="rampup", standalone_mode=False, obj=command)
        sys.stdout.flush()
        sys.exit(code if isinstance(code, int) else 0)
    except RampupError as error:
        output.fail(error)
    except click.exceptions.NoArgsIsHelpError as error:  # `rampup sandbox`: its help, no error
        error.show()
        sys.exit(error.exit_code)
    except click.ClickException as error:
        output.fail(restyle(error, words))
    except OSError as error:
        from rampup.rundir.records import FULL, refuse_write  # imports msgspec

        if error.errno not in (*FULL, errno.EROFS):
            raise
        output.fail(refuse_write(Path(error.filename or "."), error))
    except (KeyboardInterrupt, click.Abort):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not spoil the exit code
        sys.exit(130)
