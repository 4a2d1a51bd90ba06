"""Writes scalars with torch's SummaryWriter, prints them too, and continues after its newest step.
Once it asks to be started again, at the step that the second argument names."""

import sys
import time
from pathlib import Path

from torch.utils.tensorboard import SummaryWriter

STEPS, LEAVES_AT = int(sys.argv[1]), int(sys.argv[2])
saved = Path("step.txt")
begin = int(saved.read_text()) if saved.exists() else 0
writer = SummaryWriter("runs/own")
for step in range(begin + 1, STEPS + 1):
    value = 0.5 ** (step % 10)
    writer.add_scalar("Loss/train", value, step)
    print("Loss/train", step, value, flush=True)
    if step % 5 == 0:
        saved.write_text(str(step))
    if step == LEAVES_AT and begin == 0:
        writer.close()
        sys.exit(85)
    time.sleep(0.01)
writer.close()
