"""`python -m rampup.runtime.watch RUN_DIR ...`: the watcher of a command, as rank.py starts it."""

from rampup.runtime.watch.watch import main

main()
