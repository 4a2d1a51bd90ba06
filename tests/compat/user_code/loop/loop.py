"""A loop of a user's own: it adds up its steps.

What `mood` says happens at the tenth step of the first attempt. Later attempts wait as long as the
file `hold` exists.
"""

import os
import sys
import time

import rampup

run = rampup.init(steps=20, mood="", hold="")
state = run.resume() or {"step": 0, "total": 0}
first = os.environ["RAMPUP_ATTEMPT"] == "1"

while not first and os.path.exists(run.config.hold):
    time.sleep(0.01)

while state["step"] < run.config.steps:
    step = state["step"] + 1
    state = {"step": step, "total": state["total"] + step}
    run.log(step=step, total=state["total"])
    if step % 5 == 0:
        run.save(state, step)
    if first and step == 10 and run.config.mood == "asks":
        sys.exit(85)
    if first and step == 10 and run.config.mood == "fails":
        time.sleep(0.3 if run.rank == 1 else 60)  # rank 0 saves, and is ended when rank 1 fails
        raise ValueError("the tenth step is too much")

if run.rank == 0:
    print(f"the sum is {state['total']}")
