"""The `spawn` launcher: all ranks on this machine, started and watched by supervisor.py."""

import sys
from pathlib import Path


def argv(run_dir: Path) -> tuple[str, ...]:
    # -P: a file named like a module of ours in the user's directory must not be imported instead
    return (sys.executable, "-P", "-m", "rampup.runtime.supervisor", str(run_dir))
