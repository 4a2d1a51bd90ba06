"""Saves when SIGTERM comes, and ends with 0; only then. Done after the number of starts that its
argument names."""

import signal
import sys
import time
from pathlib import Path

saved = Path(sys.argv[2])
starts = 1 + (int(saved.read_text()) if saved.exists() else 0)


def save(number: int, frame: object) -> None:
    saved.write_text(str(starts))
    print("saved", starts, flush=True)
    raise SystemExit


signal.signal(signal.SIGTERM, save)
print("start", starts, flush=True)
while starts < int(sys.argv[1]):
    time.sleep(0.1)
print("complete after", starts, "starts")
