"""The environment variables that rampup reads and sets, each with what it means.

tools/reference.py makes a page from them, and a test looks for variables that are missing here.
rank.py, which runs without rampup, and the job script write the names themselves.
"""

YOURS = {
    "RAMPUP_RUNS": "the folder in which runs are stored, and where they are found; without it `./runs`",
    "RAMPUP_CLUSTER": "the default of `--on`",
    "RAMPUP_DEBUG": "`1` shows the traceback of an error in rampup itself",
    "NO_COLOR": "switches colours off",
    "XDG_CONFIG_HOME": "your profiles are in `rampup/clusters` below it; without it `~/.config`",
    "XDG_CACHE_HOME": "data sets are in `rampup` below it; without it `~/.cache`",
    "XDG_STATE_HOME": "what rampup remembers is in `rampup` below it; without it `~/.local/state`",
}
"""What you can set."""
OF_A_RANK = {
    "RANK": "the number of the rank, from 0",
    "LOCAL_RANK": "its number on this node",
    "WORLD_SIZE": "the number of ranks",
    "LOCAL_WORLD_SIZE": "the number of ranks on this node",
    "MASTER_ADDR": "the address of rank 0",
    "MASTER_PORT": "a port of rank 0",
    "TF_CONFIG": "the ranks, for tf.distribute; a recipe or class gets it only with more than one rank",
    "OMP_NUM_THREADS": "the CPUs of this rank",
    "GLOO_SOCKET_IFNAME": "the network interface that reaches rank 0, unless you set it",
    "RAMPUP_RUN_DIR": "the directory of the run",
    "RAMPUP_ATTEMPT": "the number of the attempt",
    "RAMPUP_STARTED": "when the attempt began, in seconds since 1970: the same on every rank",
    "RAMPUP_NODE": "the name of the node, as the scheduler calls it",
    "RAMPUP_STOP_AT": "when the ranks should save and stop, in seconds since 1970; empty if nobody knows",
}
"""What the program of every rank gets."""
INTERNAL = {
    "RAMPUP_SUPERVISED": "a process beside the ranks watches CPU and memory, so they do not",
    "RAMPUP_CONTAINER": "in a job script: the program that starts containers",
    "RAMPUP_APART_AFTER_S": "in tests: the CPU seconds after which ranks that never talked to each other are named",
    "RAMPUP_STEP_BEFORE": "in a job script: the newest checkpoint before the attempt, as a pack of runs sets it",
}
"""What parts of rampup tell each other."""
