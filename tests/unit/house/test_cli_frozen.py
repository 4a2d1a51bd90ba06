"""The command line is a promise: a change of it must be meant, and be made here too."""

import importlib

import click

from rampup.cli.app import ALIASES, VERBS

SLURM = "--ntasks-per-node -A -C -N -c -p -q -t -x"
"""Aliases that every verb has which starts runs."""
PROGRAM = "--again --metric --on-resume --progress --stop-lead --stop-signal"
"""Options of every verb that starts a command for the first time."""
PROMISED = {
    "run": f"""{SLURM} {PROGRAM} -J --job-name
        words --account --after --constraint --cpus-per-task --detach --dev --devices --dry-run --env --exclude
        --follow --gpus-per-node --independent --json --launcher --mail --mem --name --nodes --on --partition --qos
        --reservation --slurm --smoke --software --tasks-per-node --time""",
    "sweep": f"""{SLURM} {PROGRAM} -J --job-name
        words --account --constraint --cpus-per-task --devices --dry-run --env --exclude --gpus-per-node
        --independent --json --launcher --mail --mem --name --nodes --on --pack --partition --qos --reservation --slurm
        --software --tasks-per-node --throttle --time""",
    "new": "directory --dry-run --engine",
    "list": "name --all --columns --json --limit --name --sort --state --study --watch -n",
    "show": "run --all --checkpoints --history --json --verify",
    "logs": "run --follow --json --rank --tail -f -n",
    "report": "wanted --json --open --out --png --study",
    "export": "wanted --dry-run --json --out --project --study --to --tracking-uri",
    "wait": "wanted --json --study --timeout",
    "why": "run --json",
    "cancel": "wanted --dry-run --json --save --study",
    "resume": f"""{SLURM} wanted --account --before --code --constraint --cpus-per-task --detach --devices --dry-run --env
        --exclude --follow --gpus-per-node --independent --json --mail --mem --nodes --on --partition --qos
        --reservation --slurm --software --study --tasks-per-node --time""",
    "clean": "wanted --all --dry-run --json",
    "drill": f"""{SLURM} {PROGRAM} words --account --constraint --cpus-per-task --devices --dry-run --env --exclude --fault
        --gpus-per-node --independent --json --keep --kills --mail --mem --nodes --on --partition --qos --reservation --seed
        --slurm --software --tasks-per-node --time""",
    "recipe list": "--json",
    "recipe show": "name --json",
    "fetch": "name --dry-run --from --json",
    "doctor": "--json --on",
    "cluster list": "--json",
    "cluster show": "name --json",
    "cluster probe": "--force --save",
    "sandbox up": """--cpus-per-node --gpus-per-node --grace-time --json --max-array-size --name --no-accounting
        --no-requeue --node-timeout --nodes --slurm-conf""",
    "sandbox status": "--json --name",
    "sandbox down": "--name",
    "completion": "shell",
}

PROMISED_ALIASES = {
    "ls": "list",
    "ps": "list",
    "status": "show",
    "stop": "cancel",
    "kill": "cancel",
    "tail": "logs -f",
}


def test_aliases_are_as_promised() -> None:
    assert {alias: " ".join(words) for alias, words in ALIASES.items()} == PROMISED_ALIASES


def words_of(command: click.Command) -> str:
    arguments = [
        parameter.name or ""
        for parameter in command.params
        if isinstance(parameter, click.Argument)
    ]
    options = [
        word
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for word in parameter.opts
    ]
    return " ".join([*arguments, *sorted(options)])


def in_order(words: str) -> str:
    """Return the arguments, then the options by name."""
    found = words.split()
    options = [word for word in found if word.startswith("-")]
    return " ".join([*(word for word in found if word not in options), *sorted(options)])


def test_verbs_and_options_are_as_promised() -> None:
    found = {}
    for verb in VERBS:
        command = importlib.import_module(f"rampup.cli.{verb}").command
        inner = command.commands if isinstance(command, click.Group) else {}
        found.update(
            {f"{verb} {name}": words_of(sub) for name, sub in inner.items()}
            or {verb: words_of(command)}
        )
    assert found == {verb: in_order(words) for verb, words in PROMISED.items()}


def test_every_option_has_help() -> None:
    for verb in VERBS:
        command = importlib.import_module(f"rampup.cli.{verb}").command
        for sub in command.commands.values() if isinstance(command, click.Group) else [command]:
            assert sub.help or sub.callback.__doc__
            assert all(option.help for option in sub.params if isinstance(option, click.Option))
