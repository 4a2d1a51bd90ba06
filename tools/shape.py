"""Measure the shape of the package: files, lines, imports between its files.

    python tools/shape.py             # of this checkout
    python tools/shape.py FOLDER      # of another package

Every *.py file counts, also an empty one. The figures in docs/about/architecture.md come from here
and from tools/trace_walk.py.
"""

import ast
import statistics
import sys
from pathlib import Path

LONG = 100


def count_internal_imports(tree: ast.AST, package: str) -> int:
    """Count the import statements that name the package, wherever they stand."""
    found = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        found += any(name.split(".")[0] == package for name in names)
    return found


def measure(folder: Path) -> dict[str, str]:
    paths = sorted(folder.rglob("*.py"))
    texts = [path.read_text(encoding="utf-8") for path in paths]
    lines = [line for text in texts for line in text.splitlines()]
    imports = sum(count_internal_imports(ast.parse(text), folder.name) for text in texts)
    lengths = [len(text.splitlines()) for text in texts]
    long = sum(len(line) > LONG for line in lines)
    top = [path for path in folder.glob("*.py") if not path.name.startswith("__")]
    return {
        "files": str(len(paths)),
        "lines": str(len(lines)),
        "lines per file (median)": f"{statistics.median(lengths):.0f}",
        "internal imports per 100 lines": f"{100 * imports / len(lines):.2f}",
        "modules on the top step": str(len(top)),
        f"lines > {LONG} characters": f"{100 * long / len(lines):.1f} %",
    }


if __name__ == "__main__":
    package = Path(sys.argv[1] if sys.argv[1:] else Path(__file__).parents[1] / "rampup")
    for name, figure in measure(package.resolve()).items():
        print(f"{name}: {figure}")
