"""Ways in which the program itself fails, known by its exception or its last lines. A table, the
second half of that in why_endings.py, and read in the same way; its last rows are for what nobody
knows.
"""

from rampup.diagnose.why.problems import Problem
from rampup.runs.state import TORN

ERRORS = (
    # exceptions that tell what to do --------------------------------------------------------------
    Problem(
        "gpu-memory",
        {"error": r"(CUDA|HIP) out of memory|CUBLAS_STATUS_ALLOC_FAILED"},
        "{who} needed more memory than its GPU has{at}",
        "{smaller_batch}",
    ),
    Problem(
        "memory",
        {
            "error": r"^MemoryError|ArrayMemoryError|can't allocate memory|Cannot allocate memory|bad_alloc",
            "said": "Cannot allocate memory",
        },
        "{who} ran out of memory{at}",
        "{less_memory}",
    ),
    Problem(
        "disk-full",
        {
            "error": r"(?P<told>.*(No space left on device|Disk quota exceeded).*)",
            "said": r"(?P<told>.*(No space left on device|Disk quota exceeded|File too large).*)",
            "state": "^failed: (?P<told>.*disk is full)",
        },
        "the disk is full, or the quota: {told}{at}",
        "make room: df -h {run_dir}; or set RAMPUP_RUNS to another disk",
    ),
    Problem(
        "other-python",
        {
            "error": r"^ModuleNotFoundError: No module named 'rampup'",
            "log": r"'rampup\.worker' \(ModuleNotFoundError: No module named 'rampup'\)$",
        },
        "the program ran with another Python than rampup's own, which has no module rampup",
        "{python_with_rampup}",
    ),
    Problem(
        "module-left-out",
        {"error": r"^(ModuleNotFoundError|ImportError): .*'(?P<module>[\w.]+)'"},
        "{who} can't import {module}{at}: {left_out}",
        "move it into the folder of the script, or set PYTHONPATH to its own",
        also={"left-out": "(?P<left_out>.*)"},
    ),
    Problem(
        "module-missing",
        {"error": r"^ModuleNotFoundError: No module named '(?P<module>[\w.]+)'"},
        "the Python of {who} has no module {module}{at}",
        "{python} -m pip install {package}",
    ),
    Problem(
        "library-missing",
        {
            "error": r"(?P<library>[\w.+-]+\.so[\w.]*|GLIBC\w*_[\d.]+)'?:? (cannot open shared object|not found)"
        },
        "{who} could not load the library {library}{at}",
        "load its module before rampup run, or put its folder on LD_LIBRARY_PATH",
    ),
    Problem(
        "data-not-fetched",
        {
            "said": r"(?P<told>data set (?P<set>[\w-]+)(:| is not on this machine).*)",
            "error": r"(?P<told>data set (?P<set>[\w-]+)(:| is not on this machine).*)",
        },
        "{told}",
        "rampup fetch {set}",
    ),
    Problem(
        "file-left-out",
        {"error": r"^FileNotFoundError: "},
        "{who} looked for a file in the copy of the code{at}: {left_out}",
        "give the program the full path of the file",
        also={"left-out": "(?P<left_out>.*)"},
    ),
    Problem(
        "file-missing",
        {"error": r"^FileNotFoundError(: .*: '(?P<file>[^']+)')?"},
        "{who} found no {file}{at}",
        "bring it there, or give its full path: the program ran in {cwd}",
    ),
    Problem(
        "not-permitted",
        {
            "error": r"(^PermissionError|Read-only file system|Operation not permitted)(.*: '(?P<file>[^']+)')?"
        },
        "{who} was not permitted to use {file}{at}",
        "{look_at_file}",
    ),
    Problem(
        "port-in-use",
        {"error": r"Address already in use|EADDRINUSE"},
        "{who} wanted a port that another program holds{at}",
        "use MASTER_PORT, which rampup sets anew for every run, and no port of your own",
    ),
    Problem(
        "no-network",
        {
            "error": r"Name or service not known|Temporary failure in name resolution|Network is unreachable"
            r"|No route to host|Max retries exceeded|nodename nor servname|couldn't connect to 'http"
        },
        "{who} wanted something from the network{at}: compute nodes often have none",
        "fetch it before the run, where there is a network",
    ),
    Problem(
        "gpu-missing",
        {
            "error": r"not compiled with CUDA|no NVIDIA driver|No CUDA GPUs are available|invalid device ordinal"
            r"|CUDA driver version is insufficient|no CUDA-capable device|Attempting to deserialize object on a CUDA",
            "said": "device=cuda",
        },
        "{who} wanted a GPU that is not there{at}: {error}",
        "{gpu_remedy}",
    ),
    Problem(
        "gpu-assertion",
        {"error": "device-side assert triggered"},
        "a check inside a GPU kernel failed on {who}{at}: most often a label or index that is too large",
        "device=cpu, or CUDA_LAUNCH_BLOCKING=1, shows the line",
    ),
    Problem(
        "collective-timeout",
        {
            "error": r"Watchdog caught collective operation timeout|[Tt]imed out waiting \d+ ?ms|Timeout at NCCL work"
        },
        "{who} waited in vain for the others in a collective{at}: one rank takes another way through the program",
        "TORCH_DISTRIBUTED_DEBUG=DETAIL rampup resume {run} names the operations that differ",
    ),
    Problem(
        "peer-lost",
        {
            "said": "lost contact with another rank|can't join the others",
            "error": r"(?i)connection (closed|reset) by peer|\bgloo\b|\bnccl\b|DistNetworkError|DistStoreError",
        },
        "{who} lost contact with another rank, and that one left no word",
        "{logs}; the other ranks have logs too: --rank",
        also={"world": "^([2-9]|\\d\\d)"},
        known=False,
    ),
    Problem(
        "files-open",
        {"error": "Too many open files"},
        "{who} had more files open than it may{at}",
        "ulimit -n 65536 before rampup run, or fewer loader workers",
    ),
    Problem(
        "threads-refused",
        {"error": r"can't start new thread|Resource temporarily unavailable"},
        "{who} could not start another thread or process{at}",
        "--cpus-per-task 1, or fewer loader workers (ulimit -u tells the limit)",
    ),
    Problem(
        "asks-a-person",
        {"error": "^EOFError: EOF when reading a line"},
        "{who} asked for input{at}, and in a run there is nobody to answer",
        "give the answer as an argument or a setting",
    ),
    Problem(
        "wrong-arguments",
        {
            "log": r"rror: (?P<told>unrecognized arguments.*|the following arguments are required.*|argument .*"
            r"|No such (option|command).*|Missing (option|argument).*)"
        },
        "the program did not understand its arguments: {told}",
        "correct what follows -- in: {command}",
        also={"exit": "^code 2 "},
    ),
    Problem(
        "syntax",
        {"error": r"^(?P<told>(SyntaxError|IndentationError|TabError): .*)"},
        "the program can't be read{at}: {told}",
        "{edit}",
    ),
    Problem(
        "loss-not-finite",
        {"metric": "(?P<told>.*)"},
        "{told}: the training diverged",
        "{calmer}",
        also={"error": ".", "state": "^completed", "exit": "^code 1 "},
    ),
    # what is left ---------------------------------------------------------------------------------
    Problem("told", {"said": "(?P<told>.*)"}, "{rank}: {told}", "{hint}"),
    Problem("exception", {"error": "(?P<told>.*)"}, "{rank}: {told}{at}", "{edit}"),
    Problem(
        "not-known",
        {"state": f"^failed: (?P<told>.*{TORN}.*)"},
        "not known: {told}",
        "{look}",
        known=False,
    ),
    # what the launcher or the job script said itself, not what causes.py made of an exit code
    Problem(
        "told",
        {"state": r"^failed: (?P<told>(?!rank \d|a rank|the job ended with code).+)"},
        "{told}",
        "{look}",
    ),
    Problem(
        "not-known",
        {"exit": r"^code (?P<code>\d+) "},
        "not known: {who} ended with exit code {code}{last_words}",
        "the program chose that code itself: {logs}",
        known=False,
    ),
    Problem(
        "not-known", {"state": "^failed: (?P<told>.+)"}, "not known: {told}", "{look}", known=False
    ),
    Problem("not-known", {"state": "^failed"}, "not known: it left no word", "{look}", known=False),
)
