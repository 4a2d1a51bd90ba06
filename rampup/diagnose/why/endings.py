"""Ways in which runs end that need no look into the program: from outside, before it began, by a
signal. A table.

Part of the catalogue, read by `rampup why` from top to bottom, before why_errors.py: the first row
whose sign is among the clues is the answer, so what tells more stands above. Words in braces are
groups of the expression that fitted, or values of the run (why_words.py). To add a way: a row here,
a run that really ended so in test_why.py of tests/local or tests/slurm, and a line in
docs/troubleshooting.md.
"""

from rampup.diagnose.why.problems import Problem

ENDINGS = (
    # ended from outside ---------------------------------------------------------------------------
    Problem(
        "cancelled",
        {"cancel": "^(?P<by>rampup cancel|Ctrl-C)"},
        "it was cancelled by {by}",
        "",
        harmless=True,
    ),
    Problem(
        "stopped",
        {"state": "^cancelled: stopped in good order"},
        "it was asked to stop, and saved before it did",
        "rampup resume {run}",
        harmless=True,
    ),
    Problem(
        "cancelled-elsewhere",
        {"cancel": "(?P<by>.*)", "state": "^cancelled: (it was )?(?P<by>.*)"},
        "it was cancelled, but not by rampup: {by}",
        "{after_cancel}",
        harmless=True,
    ),
    Problem(
        "hang",
        {"silence": "(?P<silence>.*)"},
        "it may hang: {silence}",
        "{logs}, and when it stands still: rampup cancel {run}",
        also={"state": "^running"},
    ),
    Problem(
        "hung-until-limit",
        {"silence": "(?P<silence>.*)"},
        "the time limit was reached while the run hung: {silence}",
        "look where it stood: {logs}; a longer time limit does not help",
        also={"state": "^timeout"},
    ),
    Problem(
        "time-limit",
        {
            "slurm-state": "^TIMEOUT$",
            "slurm": "DUE TO TIME LIMIT",
            "again": "^timeout",
            "state": "^timeout",
        },
        "the time limit{limit} was reached{progress}",
        "rampup resume {run} --time {more_time}",
    ),
    Problem(
        "preempted",
        {"slurm-state": "^PREEMPTED$", "again": "^preempt", "slurm": "DUE TO PREEMPTION"},
        "a job with a higher priority took its nodes (preemption)",
        "rampup resume {run}",
    ),
    Problem(
        "node-lost",
        {
            "slurm": r"Node failure on (?P<node>[\w.-]+)",
            "slurm-state": "^(NODE_FAIL|BOOT_FAIL)$",
            "state": "a node of the job failed",
        },
        "the job lost a node: {node} failed or was set down",
        "rampup resume {run}{without_node}",
    ),
    Problem(
        "memory-of-job",
        {
            "slurm-state": "^OUT_OF_MEMORY$",
            "slurm": r"oom.?kill event|: Out Of Memory$|Exceeded (job|step) memory limit|exceeded memory limit",
        },
        "the job used more memory than it had asked for, and Slurm killed it",
        "rampup resume {run} --mem {more_mem}",
    ),
    Problem(
        "deadline",
        {"slurm-state": "^DEADLINE$"},
        "the deadline of the job passed",
        "leave out --slurm deadline, or set a later one",
    ),
    Problem(
        "launcher-killed",
        {"state": "its launcher is gone without a word"},
        "the launcher of the run was killed, or the machine went down",
        "rampup resume {run} --detach",
    ),
    Problem(
        "forgotten",
        {"state": "Slurm knows nothing of the job|no accounts to tell why"},
        "not known: the job left no word, and Slurm has none either",
        "see {slurm_log}",
        known=False,
    ),
    # before the program began ---------------------------------------------------------------------
    Problem(
        "run-not-shared",
        {
            "said": r"^(?P<told>node .* (can't read|sees another) .*)",
            "slurm": r"rampup: (?P<told>can't write .* on .*|node .* (can't read|sees another) .*run\.json)",
        },
        "{told}",
        "put runs on storage that all nodes share: set RAMPUP_RUNS",
    ),
    Problem(
        "modules",
        {
            "slurm": r"rampup: error: (?P<told>module \w+ (?P<module>\S+).* failed .*|there is no command module .*)",
            "state": r"^failed: (?P<told>module \w+ (?P<module>\S+).* failed .*|there is no command module .*)",
        },
        "{told}",
        "{modules_remedy}",
        also={"exit": "^code 78 "},
    ),
    Problem(
        "environment",
        {
            "slurm": "rampup: error: (?P<told>environment .*)",
            "state": "^failed: (?P<told>environment .*|the environment of the run was not ready.*)",
        },
        "{told}",
        "make it where every node sees it, then rampup resume {run}; or choose another one there: --env",
        also={"exit": "^code 78 "},
    ),
    Problem(
        "wrong-layout",
        {"said": r"^(?P<told>\d+ tasks were started, the run has \d+ ranks)"},
        "{told}",
        "{hint}",
    ),
    Problem(
        "rank-missing",
        {"said": r"^(?P<told>rank (?P<missing>\d+).* did not come)"},
        "{told}: it died before it could meet the others, or its node is cut off",
        "rampup logs {run} --rank {missing}, then {slurm_log}",
    ),
    Problem(
        "rank-cut-off", {"said": r"(?P<told>rank \d+.* can't reach rank 0.*)"}, "{told}", "{hint}"
    ),
    Problem(
        "other-settings",
        {"said": r"(?P<told>rank \d+.* has other settings than rank 0)"},
        "{told}",
        "{hint}",
    ),
    Problem(
        "ports-taken",
        {"state": "no free port for the ranks", "slurm": r"rampup: port \d+( or \d+)? is taken"},
        "other programs on the node hold the ports where the ranks would meet",
        "rampup resume {run}: another attempt gets other ports",
        also={"exit": "^code 98 ", "state": "no free port for the ranks"},
    ),
    Problem(
        "program-missing",
        {
            "log": r"(?P<program>[^\s:]+): (No such file or directory|(command )?not found)$",
            "exit": "^code 127 ",
        },
        "{who} could not start {program}: it is not there",
        "use its full path, or put its folder on PATH before rampup run",
        also={"exit": "^code 127 "},
    ),
    Problem(
        "program-not-executable",
        {
            "log": r"(?P<program>[^\s:]+): (Permission denied|Is a directory|Exec format error|cannot execute.*)$",
            "exit": "^code 126 ",
        },
        "{who} could not start {program}: it is no program that this user can execute",
        "chmod +x {program}, or name its interpreter: bash {program}",
        also={"exit": "^code 126 "},
    ),
    # signals --------------------------------------------------------------------------------------
    Problem(
        "memory-killed",
        {"exit": "^signal 9 "},
        "{who} was killed by signal 9 while the memory of its machine was full",
        "{less_memory}",
        also={"memory": "(?P<memory>.*)"},
    ),
    Problem(
        "killed",
        {"exit": "^signal 9 "},
        "{who} was killed by signal 9 (SIGKILL) from outside: by hand, or for lack of memory",
        "{killed_by} tells whether it was memory",
    ),
    Problem(
        "shared-memory-full",
        {
            "error": r"out of shared memory|/dev/shm.*No space left",
            "log": "insufficient shared memory",
        },
        "{who} found /dev/shm full: the workers of its data loader hand over their batches there",
        "num_workers=0, or in a container: docker run --shm-size=2g",
        also={"error": "shared memory|DataLoader worker|/dev/shm", "exit": "^signal 7 "},
    ),
    Problem(
        "loader-killed",
        {"error": r"DataLoader worker .*(killed by signal: Killed|exited unexpectedly)"},
        "a worker of the data loader of {who} was killed, most often for lack of memory",
        "num_workers=0 shows whether it is memory; then {less_memory}",
    ),
    Problem(
        "bus-error",
        {"exit": "^signal 7 "},
        "{who} died of a bus error{at}: a file that it had mapped became shorter, or /dev/shm is full",
        "df -h /dev/shm, and leave data files alone while a run reads them",
    ),
    Problem(
        "segmentation-fault",
        {"exit": "^signal 11 "},
        "{who} died of a segmentation fault{at}, in a library that is not Python",
        "PYTHONFAULTHANDLER=1 rampup resume {run} shows the line; versions of libraries may not fit together",
    ),
    Problem(
        "illegal-instruction",
        {"exit": "^signal 4 "},
        "{who} executed an instruction that the CPU does not have: a library was built for another CPU",
        "install the libraries on a node of this kind, or choose the nodes: --constraint",
    ),
    Problem(
        "aborted",
        {"exit": "^signal 6 "},
        "{who} was aborted by a library{at}{last_words}",
        "{logs}",
    ),
    Problem(
        "ended-by-signal",
        {"exit": r"^signal \d+ \((?P<signal>\w+)\)"},
        "{who} was ended by {signal}",
        "{logs}",
    ),
)
