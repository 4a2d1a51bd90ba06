"""Command lines as people write them who know sbatch, torchrun, argparse or docker, and what to
type here instead.

`RunCommand` is the class of the verbs that start something (`run`, `sweep`, `drill`, `resume`): its
errors end with the corrected line, and its --help is in groups. `Subcommands` does the same for the
verbs inside a verb. Options that mean the same here are aliases: see run.py.
"""

import contextlib
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from rampup.errors import RampupError, UsageError, nearest

OPTIONS = {
    "-w": "--slurm nodelist={}",
    "--nodelist": "--slurm nodelist={}",
    "-d": "--slurm dependency={}",
    "--dependency": "--slurm dependency={}",
    "--mem-per-cpu": "--slurm mem-per-cpu={}",
    "--cpus": "--cpus-per-task {}",
    "--gpus-per-task": "--gpus-per-node {}",
    "--gpu": "--gpus-per-node {}",
    "--nnodes": "--nodes {}",
    "--nproc-per-node": "--tasks-per-node {}",
    "--nproc_per_node": "--tasks-per-node {}",
    "--cluster": "--on {}",
    "--mail-user": "--mail {}",
    "--wait": "--follow",
    "-W": "--follow",
    "--test-only": "--dry-run",
}
"""Options of other tools, and what to write here in place of option and value."""
REASONS = {
    "-n": "ranks = --nodes x --tasks-per-node",
    "--ntasks": "ranks = --nodes x --tasks-per-node",
    "-o": "each rank has a log in its run: leave it out, and read it with `rampup logs`",
    "--output": "each rank has a log in its run: leave it out, and read it with `rampup logs`",
    "-e": "each rank has a log in its run: leave it out, and read it with `rampup logs`",
    "--error": "each rank has a log in its run: leave it out, and read it with `rampup logs`",
    "-a": "rampup sweep RECIPE KEY=A,B starts an array",
    "--array": "rampup sweep RECIPE KEY=A,B starts an array",
}
"""Options of sbatch that have no counterpart of one word."""
TOTALS = {"-n": "tasks", "--ntasks": "tasks", "-G": "gpus", "--gpus": "gpus"}
"""Options of sbatch that count over all nodes: here the option counts for each."""


class GroupedCommand(click.Command):
    """A command whose --help lists its options in groups."""

    def __init__(
        self, *args: Any, groups: Mapping[str, Sequence[str]] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.groups = groups or {}

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        placed = {name: title for title, names in self.groups.items() for name in names}
        found: dict[str, list[tuple[str, str]]] = {title: [] for title in (*self.groups, "Other")}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                found[placed.get(parameter.name or "", "Other")].append(record)
        for title, records in found.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class RunCommand(GroupedCommand):
    """A verb that starts runs: a command line that another tool would take is answered with the
    line to type."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        typed = list(args)
        if ctx.resilient_parsing:  # a shell completes a word
            return super().parse_args(ctx, args)
        if not takes_words(ctx):
            refuse_settings(ctx, typed)
        elif ctx.obj is None:
            refuse_bare_command(ctx, typed)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            hint = explain_option(ctx, typed, error)
            raise UsageError(f"no such option: {error.option_name}", hint) from None


class Subcommands(click.Group):
    """A verb with verbs inside; words of other tools are answered by their meaning."""

    def __init__(
        self, *args: Any, meanings: Mapping[str, str] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.meanings = meanings or {}

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self.commands and not name.startswith("-"):
            hint = self.meanings.get(name) or nearest(name, self.commands)
            raise UsageError(f"unknown command '{ctx.command_path} {name}'", hint)
        return super().resolve_command(ctx, args)


def takes_words(ctx: click.Context) -> bool:
    """Tell whether the verb takes a target and settings."""
    return any(parameter.name == "words" for parameter in ctx.command.params)


def refuse_settings(ctx: click.Context, args: Sequence[str]) -> None:
    """Refuse `rampup resume RUN epochs=5`."""
    for word in split_options(ctx, args)[1]:
        if not word.startswith("-") and "=" in word:
            raise UsageError(
                f"a resumed run keeps its settings: {word!r}",
                f"start a new run: rampup run RECIPE {word}",
            )


# a command without -- -----------------------------------------------------------------------------


def refuse_bare_command(ctx: click.Context, args: Sequence[str]) -> None:
    """Refuse `rampup run train.py` and `rampup run python train.py`: a command follows `--`."""
    options, rest = split_options(ctx, args)
    at = next((index for index, word in enumerate(rest) if is_target(word)), None)
    if at is None:
        return
    program = as_program(rest[at])
    if program is not None:
        line = [*options, *rest[:at], "--", *program, *rest[at + 1 :]]
        raise UsageError(
            f"{rest[at]!r} is not a recipe; a command goes after --", write_line(ctx, line)
        )


def split_options(ctx: click.Context, args: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the options of the verb with their values, and all other words."""
    flags = {
        name: parameter.is_flag
        for parameter in ctx.command.params
        if isinstance(parameter, click.Option)
        for name in parameter.opts
    }
    options: list[str] = []
    rest: list[str] = []
    waiting = list(args)
    while waiting:
        word = waiting.pop(0)
        name = word.partition("=")[0] if word.startswith("--") else word[:2]
        if name not in flags:
            rest.append(word)
            continue
        options.append(word)
        if word == name and not flags[name] and waiting:
            options.append(waiting.pop(0))
    return options, rest


def is_target(word: str) -> bool:
    return not word.startswith("-") and "=" not in word.partition(" ")[0]


def as_program(word: str) -> list[str] | None:
    """Return how to start what looks like a program, else None."""
    if word.endswith(".toml") or (Path(word) / "recipe.toml").is_file():
        return None
    if any(sign in word for sign in "|&;<>$") and " " in word:
        return ["bash", "-c", word]
    if " " in word:
        return shlex.split(word) if word.count("'") % 2 == 0 else ["bash", "-c", word]
    if word.endswith(".py"):
        return ["python", word]
    if word.endswith(".sh"):
        return ["bash", word]
    import shutil  # slow to import

    if ":" in word or shutil.which(word) is None:
        return None
    from rampup.config.recipes import names

    return None if word in names() else [word]


# an option of another tool ------------------------------------------------------------------------


def explain_option(ctx: click.Context, args: Sequence[str], error: click.NoSuchOption) -> str:
    """Return the line to type in place of an unknown option."""
    option = error.option_name
    value, begin, end = find_value(args, option)
    number = (value or "").rpartition(":")[2]
    if option == "--gres" or option in TOTALS:
        counted = TOTALS.get(option, "gpus")
        # --gres counts for each node already
        each = share(number, args) if option in TOTALS else number
        words = [f"--{counted}-per-node", each or "N"]
        reason = REASONS.get(option, "give the GPUs per node; the profile adds the rest")
        return f"{reason}: {write_line(ctx, [*args[:begin], *words, *args[end:]])}"
    if option in OPTIONS:
        words = OPTIONS[option].format(value or "VALUE").split(" ")
        if "{" not in OPTIONS[option]:  # a flag: the next word was not its value
            end = begin + 1
        return write_line(ctx, [*args[:begin], *words, *args[end:]])
    if option in REASONS:
        return REASONS[option]
    key = as_setting(ctx, args, option) if takes_words(ctx) else None
    if key is not None:
        line = [*args[:begin], f"{key}={value or 'VALUE'}", *args[end:]]
        return f"settings have no dashes: {write_line(ctx, line)}"
    close = suggest_option(error)
    dashes = "settings have no dashes: KEY=VALUE; " if takes_words(ctx) else ""
    return close or f"{dashes}{ctx.command_path} --help lists the options"


def suggest_option(error: click.NoSuchOption) -> str:
    """Return the option that was misspelled; nothing when none is close."""
    import difflib  # only a mistake pays for it

    known = error.possibilities or ()
    close = difflib.get_close_matches(error.option_name, known, n=1, cutoff=0.75)
    return f"did you mean {close[0]}?" if close else ""


def find_value(args: Sequence[str], option: str) -> tuple[str | None, int, int]:
    """Return the value of an option, and where both begin and end."""
    for index, word in enumerate(args):
        if word.startswith(f"{option}="):
            return word.partition("=")[2], index, index + 1
        if word == option:
            after = args[index + 1 : index + 2]
            has_value = bool(after) and not after[0].startswith("--")
            return (after[0], index, index + 2) if has_value else (None, index, index + 1)
        if len(option) == 2 and word.startswith(option):
            return word[2:], index, index + 1
    return None, len(args), len(args)


def share(total: str, args: Sequence[str]) -> str:
    """Return the part of a total that each node has; the total itself where it can't be divided."""
    nodes = find_value(args, "--nodes")[0] or find_value(args, "-N")[0] or "1"
    if not (total.isdigit() and nodes.isdigit()) or int(nodes) < 1 or int(total) % int(nodes):
        return total
    return str(int(total) // int(nodes))


def as_setting(ctx: click.Context, args: Sequence[str], option: str) -> str | None:
    """Return the setting that an option means: of the recipe, or by a name that everybody uses."""
    from rampup.config.recipes import load
    from rampup.config.synonyms import SAME, find_synonym

    target = next((word for word in split_options(ctx, args)[1] if is_target(word)), None)
    known: list[str] = [name for row in SAME for name in row]
    if target is not None and not target.endswith(".toml"):
        with contextlib.suppress(RampupError):  # it is refused when it is resolved
            known = list(load(target, Path.cwd()).settings)
    name = option.lstrip("-")
    return find_synonym(name, known) if len(name) > 1 else None


def write_line(ctx: click.Context, args: Sequence[str]) -> str:
    """Return a whole command line, with the user's own command."""
    own = ["--", *ctx.obj] if isinstance(ctx.obj, tuple) else []
    return f"{ctx.command_path} {shlex.join([*args, *own])}"
