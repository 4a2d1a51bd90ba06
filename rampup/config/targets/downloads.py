"""Calls in somebody's source that seem to download. Nothing of it is imported or run.

lightning.py looks at the methods that every rank calls, diagnose/checks at the script of a command:
compute nodes often have no network, and several ranks would write one file at once.
"""

import ast
from pathlib import Path

NAMES = (
    *(
        "urlretrieve",
        "urlopen",
        "load_dataset",
        "snapshot_download",
        "hf_hub_download",
        "download_url",
    ),
    *(
        "download_and_extract_archive",
        "load_state_dict_from_url",
        "fetch_openml",
        "dataset_download",
    ),
)
CLIENTS = {
    "requests": ("get", "post", "request"),
    "httpx": ("get", "stream"),
    "wget": ("download",),
    "gdown": ("download", "download_folder"),
    "kagglehub": ("dataset_download", "model_download"),
}
"""Modules, and their functions that download."""
LARGEST_SCRIPT = 2**20


def find_download(source: ast.AST) -> int | None:
    """Return the line of the first call that seems to download."""
    calls = [node for node in ast.walk(source) if isinstance(node, ast.Call)]
    return min((node.lineno for node in calls if _is_download(node)), default=None)


def find_download_in(script: Path) -> int | None:
    """The same for a script of Python; None too where it can't be read as one."""
    try:
        if script.stat().st_size > LARGEST_SCRIPT:
            return None
        return find_download(ast.parse(script.read_bytes()))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None


def _is_download(node: ast.Call) -> bool:
    called = (
        node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    )
    owner = getattr(node.func.value, "id", "") if isinstance(node.func, ast.Attribute) else ""
    asked = any(
        word.arg == "download" and isinstance(word.value, ast.Constant) and word.value.value is True
        for word in node.keywords
    )
    return asked or called in NAMES or called in CLIENTS.get(owner, ())
