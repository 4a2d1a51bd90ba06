"""`rampup recipe list|show`: what can be trained, and with which settings."""

from pathlib import Path

import click
from msgspec import to_builtins

from rampup.cli import output
from rampup.cli.guesses import Subcommands
from rampup.cli.options import complete_recipe, json_option
from rampup.config import recipes


@click.group(
    cls=Subcommands,
    meanings={
        "ls": "rampup recipe list",
        "new": "rampup new DIRECTORY",
        "create": "rampup new DIRECTORY",
        "init": "rampup new DIRECTORY",
        "add": "rampup new DIRECTORY",
        "run": "rampup run RECIPE",
    },
)
def command() -> None:
    """List and show recipes: what can be trained."""


@command.command("list")
@json_option
def list_recipes(as_json: bool) -> int:
    """List all recipes."""
    found = [recipes.load(name, Path.cwd()) for name in recipes.names()]
    if as_json:
        output.emit_json([to_builtins(recipe) for recipe in found])
        return 0
    rows = [
        (recipe.name, recipe.engine, ", ".join(recipe.data) or "-", recipe.about)
        for recipe in found
    ]
    output.table(("recipe", "engine", "data", "about"), rows, fold_last=True)
    output.next_step("rampup recipe show mnist")
    return 0


@command.command("show")
@click.argument("name", shell_complete=complete_recipe)
@json_option
def show_recipe(name: str, as_json: bool) -> int:
    """Show one recipe and its settings."""
    recipe = recipes.load(name, Path.cwd())
    if as_json:
        output.emit_json(to_builtins(recipe))
        return 0
    output.write(f"{output.paint(recipe.name, output.BOLD)}: {recipe.about}")
    output.write_whole(f"folder: {recipe.folder}")
    for what, names in (("needs", recipe.requires), ("data", recipe.data)):
        if names:
            output.write_whole(f"{what}: {', '.join(names)}")
    rows = []
    for key, setting in recipe.settings.items():
        choices = f" ({'|'.join(setting.choices)})" if setting.choices else ""
        default = "none" if setting.default is None else str(setting.default)
        rows.append((key, default, setting.type, setting.help + choices))
    output.write_whole()
    output.table(("setting", "default", "type", "about"), rows, fold_last=True)
    output.next_step(f"rampup run {name}")
    return 0
