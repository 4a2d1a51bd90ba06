"""Arguments and options that several verbs share: RUN, --study, --json, --dry-run, and their tab
completion.

What completes a word is imported when a shell asks for it, never when a verb runs.
"""

from collections.abc import Callable, Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem

from rampup.core.harmless import escape_line

Function = Callable[..., Any]
MOST_RUNS = 200
"""Runs among which an id is completed, the newest first."""
COLUMNS_FROM = 5
"""Runs whose columns are completed, the newest first."""


def complete_with(words: Mapping[str, str]) -> list[CompletionItem]:
    """Return words with what they mean. Those that a shell would not take as one word are left out:
    anybody may have named a run."""
    return [
        CompletionItem(word, help=escape_line(about) or None)
        for word, about in words.items()
        if word == escape_line(word)
    ]


def complete_run(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    from rampup.rundir.find import all_runs, parse_run_name

    found = [run for run in all_runs()[:MOST_RUNS] if run.id.startswith(incomplete)]
    return complete_with({run.id: parse_run_name(run)[0] for run in found})


def complete_name(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    from rampup.rundir.find import all_runs, parse_run_name

    found = dict.fromkeys(parse_run_name(run)[0] for run in all_runs()[:MOST_RUNS])
    return complete_with({name: "" for name in found if name.startswith(incomplete)})


def complete_recipe(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    from rampup.config.recipes import names

    return [CompletionItem(name) for name in names() if name.startswith(incomplete)]


def complete_cluster(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    from rampup.config.clusters import names

    return [CompletionItem(name) for name in names() if name.startswith(incomplete)]


def complete_words(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete what follows `run`: a recipe or a file, then its settings."""
    from pathlib import Path

    from rampup.config import recipes as load
    from rampup.errors import RampupError

    targets = [word for word in ctx.params.get("words") or () if "=" not in word]
    if targets:
        try:
            settings = load.load(targets[0], Path.cwd()).settings
        except RampupError:  # a file, or a name that is wrong: `run` will say so
            return []
        return [
            CompletionItem(f"{key}=", help=settings[key].help)
            for key in settings
            if key.startswith(incomplete)
        ]
    return complete_recipe(ctx, param, incomplete) or [CompletionItem(incomplete, type="file")]


def complete_study(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    from rampup.study.members import names

    return complete_with({name: "" for name in names() if name.startswith(incomplete)})


def complete_launcher(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    from rampup.launchers import LAUNCHERS

    return [CompletionItem(name) for name in LAUNCHERS if name.startswith(incomplete)]


def complete_columns(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the last name of A,B,...: what the newest runs have."""
    from rampup.cli.compare import list_columns

    before, comma, last = incomplete.rpartition(",")
    found = [name for name in list_columns(COLUMNS_FROM) if name.startswith(last)]
    return complete_with({f"{before}{comma}{name}": "" for name in found})


def study_option(about: str) -> Callable[[Function], Function]:
    return click.option("--study", metavar="STUDY", shell_complete=complete_study, help=about)


def run_argument(function: Function) -> Function:
    return click.argument("run", required=False, shell_complete=complete_run)(function)


def json_option(function: Function) -> Function:
    return click.option(
        "--json", "as_json", is_flag=True, help="Print one JSON value on stdout and nothing else."
    )(function)


def dry_run_option(function: Function) -> Function:
    return click.option("--dry-run", is_flag=True, help="Show what would happen; change nothing.")(
        function
    )
