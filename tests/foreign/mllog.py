"""Prints MLPerf's lines, as its logging package does, and continues after its own newest step. The
arguments are the number of steps, and the one after which it asks once to be started again."""

import json
import sys
from pathlib import Path

STEPS, LEAVES_AT = int(sys.argv[1]), int(sys.argv[2])


def log(kind: str, key: str, value: object, **metadata: object) -> None:
    line = {"namespace": "", "time_ms": 1, "event_type": kind, "key": key, "value": value}
    line["metadata"] = {"file": "train.py", "lineno": 7, **metadata}
    print(f":::MLLOG {json.dumps(line)}", flush=True)


log("POINT_IN_TIME", "global_batch_size", 64)
log("POINT_IN_TIME", "train_samples", 121266)
log("INTERVAL_START", "run_start", None)
saved = Path("step.txt")
begin = int(saved.read_text()) if saved.exists() else 0
for step in range(begin + 1, STEPS + 1):
    log("POINT_IN_TIME", "train_loss", 1 / step, epoch_num=(step + 3) // 4, step_num=step)
    if step % 4 == 0:
        log("POINT_IN_TIME", "eval_accuracy", step / STEPS, epoch_num=step // 4, step_num=step)
        saved.write_text(str(step))
    if step == LEAVES_AT and begin == 0:
        print(':::MLLOG {"key": "torn', end="")
        sys.exit(85)
log("INTERVAL_END", "run_stop", None, status="success")
