"""The pages of docs/reference, made from the declarations: `python tools/reference.py` writes them.

Each page says where its facts are declared. A test compares the pages with what this would write.
"""

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path

import click
from msgspec import NODEFAULT
from msgspec.structs import fields

from rampup import errors
from rampup.cli import app
from rampup.config.recipes import load, names
from rampup.config.setting_tables import CHECKPOINT, PROGRAM, RESOURCES, TYPE_NAMES
from rampup.core import variables
from rampup.core.engines import ENGINES
from rampup.core.spec import Cluster, Setting
from rampup.diagnose.why.explain import read_problems

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
WIDTH = 80
SUFFIXES = ("at_line", "at_step", "exclude_node", "last_line", "of_time_limit")
"""Words of a problem that end a sentence: left out where there is no run."""


def write_pages() -> dict[str, str]:
    """Return the text of every page by its name."""
    return {
        "README.md": write_index(),
        "cli.md": write_verbs(),
        "settings.md": write_settings(),
        "profile-keys.md": write_keys(),
        "exit-codes.md": write_codes(),
        "problems.md": write_problems(),
        "variables.md": write_variables(),
    }


def write_index() -> str:
    return join(
        "# Reference",
        "Everything that you can type, set or get back. These pages are made from the code.",
        "- [The command line](cli.md): every verb with its options\n"
        "- [Settings](settings.md): resources, checkpoints, and what engines and recipes take\n"
        "- [Profile keys](profile-keys.md): how a cluster is described\n"
        "- [Exit codes](exit-codes.md)\n"
        "- [Problems](problems.md) that `rampup why` knows\n"
        "- [Environment variables](variables.md)",
    )


def write_verbs() -> str:
    parts = ["# The command line", made_from("rampup/cli/")]
    top = open_context(app.cli, None, "rampup")
    for verb in app.VERBS:
        command = app.cli.get_command(top, verb)
        assert command is not None
        parts += describe_command(command, top, verb)
    aliases = ((f"`{old}`", f"`{' '.join(new)}`") for old, new in app.ALIASES.items())
    parts += ["## Aliases", table(("verb", "means"), aliases)]
    return join(*parts)


def describe_command(command: click.Command, above: click.Context, verb: str) -> list[str]:
    """Describe a verb and, where it has some, the verbs below it."""
    context = open_context(command, above, verb)
    parts = [f"## {context.command_path}", f"```text\n{command.get_help(context)}\n```"]
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            parts += describe_command(found, context, name)
    return parts


def open_context(command: click.Command, above: click.Context | None, name: str) -> click.Context:
    return click.Context(
        command,
        parent=above,
        info_name=name,
        help_option_names=app.cli.context_settings["help_option_names"],
        max_content_width=WIDTH,
        terminal_width=WIDTH,
    )


def write_settings() -> str:
    parts = [
        "# Settings",
        made_from(
            "rampup/core/resources.py",
            "rampup/core/program.py",
            "rampup/core/engines/",
            "each recipe.toml",
        ),
        "Write them as `key=value` on the command line, or in a TOML file under the table that the"
        " heading names. `rampup recipe show NAME` prints those of a recipe with their values.",
        "## [resources]",
        "Each is also an option: `--nodes 2`. `lead_s`, `requeues` and `slurm` are written as"
        " `resources.lead_s=60`; `--slurm KEY=VALUE` adds to the last.",
        list_settings(RESOURCES),
        "## [checkpoint]",
        list_settings(CHECKPOINT),
        "## [program]",
        "For commands, which know nothing of rampup; each is also an option: `--metric 'loss=loss"
        " (\\S+)'`. See [any command](../commands.md).",
        list_settings(PROGRAM),
    ]
    for engine in ENGINES.values():
        parts += [f"## [train], engine {engine.name}", list_settings(engine.settings)]
    for name in names():
        recipe = load(name, Path.cwd())
        of_engine = ENGINES[recipe.engine].settings if recipe.engine in ENGINES else {}
        own = {key: one for key, one in recipe.settings.items() if of_engine.get(key) != one}
        parts += [f"## [train], recipe {name}", f"{recipe.about}.", list_settings(own)]
    return join(*parts)


def list_settings(settings: Mapping[str, Setting]) -> str:
    rows = []
    for key, setting in settings.items():
        kind = " or ".join(setting.choices) if setting.choices else TYPE_NAMES[setting.type]
        if setting.low is not None:
            kind += f", at least {setting.low:g}"
        rows.append((f"`{key}`", setting.help, kind, show_default(setting.default)))
    return table(("key", "meaning", "type", "default"), rows)


def write_keys() -> str:
    helps = read_docstrings(Cluster)
    rows = [
        (f"`{field.name}`", helps[field.name], show_default(find_default(field)))
        for field in fields(Cluster)
        if field.name != "name"
    ]
    return join(
        "# Profile keys",
        made_from("rampup/core/spec.py"),
        "A profile is one TOML file that describes a cluster: see [describe your"
        " cluster](../clusters.md). rampup refuses a misspelt key, with the nearest known key as a"
        " hint.",
        table(("key", "meaning", "default"), rows),
    )


def find_default(field: object) -> object:
    default = getattr(field, "default", NODEFAULT)
    if default is not NODEFAULT:
        return default
    factory = getattr(field, "default_factory", NODEFAULT)
    return factory() if factory is not NODEFAULT else None


def read_docstrings(record: type) -> dict[str, str]:
    """Return the text below each field of a class."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(record))).body
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, below in zip(body.body, body.body[1:], strict=False):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            found[field.target.id] = " ".join(str(below.value.value).split())
    return found


def write_codes() -> str:
    lines = (errors.__doc__ or "").splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("code "))
    columns = (0, lines[first].index("program"), lines[first].index("meaning"))
    rows = []
    for line in lines[first + 1 :]:
        if not line.strip():
            break
        code, program = line[: columns[1]].strip(), line[columns[1] : columns[2]].strip()
        rows.append((code, program, line[columns[2] :].strip()))
    return join(
        "# Exit codes",
        made_from("rampup/errors.py"),
        table(("code", "program", "meaning"), rows),
    )


def write_problems() -> str:
    rows = [
        (
            f"`{problem.id}`",
            name_words(problem.cause),
            name_words(problem.remedy),
            "<br>".join(f"{source}: `{text}`" for source, text in problem.example.items()),
        )
        for problem in read_problems()
    ]
    return join(
        "# Problems",
        made_from("rampup/diagnose/why/problems.toml"),
        "What `rampup why` can answer, from the most special to the most general: the first that"
        " fits is the answer. Words in italics are values of the run.\n"
        "[Troubleshooting](../troubleshooting.md) has the same in groups, and"
        " [how to add one](../troubleshooting.md#add-a-problem).",
        table(("problem", "cause", "remedy", "what such a run leaves"), rows),
    )


def name_words(template: str) -> str:
    """Return a sentence of problems.toml with the values of a run as words."""
    for suffix in SUFFIXES:
        template = template.replace(f"{{{suffix}}}", "")
    return re.sub(r"{(\w+)}", lambda found: f"*{found[1].replace('_', ' ')}*", template)


def write_variables() -> str:
    parts = ["# Environment variables", made_from("rampup/core/variables.py")]
    for title, about in (
        ("Variables that you can set", variables.YOURS),
        ("Variables of every rank", variables.OF_A_RANK),
        ("Variables between the parts of rampup", variables.INTERNAL),
    ):
        rows = ((f"`{name}`", text) for name, text in about.items())
        parts += [f"## {title}", table(("variable", "meaning"), rows)]
    return join(*parts)


# text ---------------------------------------------------------------------------------------------


def made_from(*places: str) -> str:
    joined = ", ".join(f"`{place}`" if "/" in place else place for place in places)
    return f"Made by `python tools/reference.py` from {joined}."


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(escape(cell) for cell in line)} |" for line in lines)


def escape(cell: str) -> str:
    return cell.replace("|", "\\|").replace("\n", " ")


def show_default(value: object) -> str:
    if value is None or value in ("", [], {}):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, list):
        return f"`{','.join(map(str, value))}`"
    return f"`{value}`"


def join(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part) + "\n"


def main(words: list[str]) -> int:
    """Write the pages; with --check only name those that would change."""
    pages, stale = write_pages(), []
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages.items():
        page = FOLDER / name
        if not page.is_file() or page.read_text() != text:
            stale.append(name)
            if "--check" not in words:
                page.write_text(text)
    stale += sorted({path.name for path in FOLDER.iterdir()} - pages.keys())
    print("\n".join(stale), end="")
    return 1 if stale and "--check" in words else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
