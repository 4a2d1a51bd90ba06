"""Saves after every step, and continues from there with its own option --init_from=resume, as nanoGPT
does; without it, it begins again and loses what it had. It listens to no signal. Done after the
number of starts that its argument names."""

import sys
import time
from pathlib import Path

saved = Path(sys.argv[2])
resumes = "--init_from=resume" in sys.argv
if resumes:
    starts, step = map(int, saved.read_text().split())
else:
    starts, step = 0, 0
starts += 1
saved.parent.mkdir(exist_ok=True)
while starts < int(sys.argv[1]):
    step += 1
    saved.write_text(f"{starts} {step}")
    print("loss", 1 / step, flush=True)
    time.sleep(0.5)
print("complete after", starts, "starts and", step, "steps")
