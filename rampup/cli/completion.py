"""`rampup completion`: the script that teaches a shell to complete verbs, options, recipes and run
ids."""

import click
from click.shell_completion import get_completion_class

FILES = {"bash": "~/.bashrc", "zsh": "~/.zshrc", "fish": "~/.config/fish/completions/rampup.fish"}


@click.command()
@click.argument("shell", type=click.Choice(list(FILES)))
@click.pass_context
def command(ctx: click.Context, shell: str) -> int:
    """Print the script for tab completion; append it to the start file of your shell.

    \b
    rampup completion bash >> ~/.bashrc
    """
    kind = get_completion_class(shell)
    assert kind is not None
    root = ctx.find_root().command
    print(kind(root, {}, "rampup", "_RAMPUP_COMPLETE").source())
    return 0
