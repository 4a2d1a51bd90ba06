"""Prints steps and losses as people do, and continues after its newest step. Once it asks to be
started again, at the step that the second argument names."""

import sys
from pathlib import Path

STEPS, LEAVES_AT = int(sys.argv[1]), int(sys.argv[2])
saved = Path("step.txt")
begin = int(saved.read_text()) if saved.exists() else 0
for step in range(begin + 1, STEPS + 1):
    print(f"[step {step:4d}] loss {1 / step:.6f}, acc: {step / STEPS:.2%} x{'y' * 5000}")
    if step % 5 == 0:
        saved.write_text(str(step))
    if step == LEAVES_AT and begin == 0:
        sys.exit(85)
