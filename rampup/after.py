"""A run that comes after others: whether it may begin, by what the directories of the others say.
Copied into the directory of a run with --after.

Its job script asks before it starts any rank, and on this machine the supervisor. A job may go, go
behind another job because a run that it waits for was put into the queue again, or never go.
Standard library only, Python >= 3.6; it knows Slurm only as the program that its job runs under.
"""

import json
import os
import subprocess
import sys
import time
from typing import Any, Callable, Dict, List, Set, Tuple

GO, WAIT, NEVER = "go", "wait", "never"
GO_CODE, BEHIND_CODE, NEVER_CODE = 0, 75, 76
CATCH_UP_S = 30.0
"""A job may be gone before its last record arrives through a shared file system."""
FAILED = ("failed", "cancelled", "timeout", "stopped")
QUEUED = ("PENDING", "RUNNING", "CONFIGURING", "SUSPENDED", "REQUEUED", "COMPLETING", "STOPPED")
INHERITED = ("SLURM", "SBATCH_", "SRUN_")
"""Variables of a job, which a job that is submitted inside of it would take for its own requests."""

Record = Dict[str, Any]
IsGoing = Callable[[Record], bool]
"""Whether the job or the process that a record names is still to be waited for."""


def decide(run_dir: str, is_going: IsGoing) -> Tuple[str, str]:
    """Say whether a run may go, behind which job it must wait, or why it never goes."""
    waits = ""
    for before in read_json(os.path.join(run_dir, "config.json")).get("after", []):
        word, detail = ask_one(before["dir"], is_going)
        if word == NEVER:
            return NEVER, "run %s, which comes before it, %s" % (before["id"], detail)
        if word == WAIT:
            waits = waits or detail
    return (WAIT, waits) if waits else (GO, "")


def ask_one(run_dir: str, is_going: IsGoing) -> Tuple[str, str]:
    """Say the same of one run that comes before."""
    deadline = time.time() + CATCH_UP_S
    while True:
        facts, last = read_end(run_dir)
        outcome = facts.get("outcome")
        if outcome == "completed":
            return GO, ""
        if is_going(last):
            return WAIT, str(last.get("job") or last.get("pid"))
        if outcome in FAILED:
            ended = "ended as %s" % outcome
            if outcome == "stopped":
                ended = "was stopped"
            return NEVER, "%s: %s" % (ended, facts["cause"]) if facts.get("cause") else ended
        if read_end(run_dir)[1] == last and time.time() > deadline:
            return NEVER, "has ended without a record of how"
        time.sleep(0.5)


def read_end(run_dir: str) -> Tuple[Record, Record]:
    """Return what the newest attempt of a run says, and the job or process that has the run."""
    submitted = {}  # type: Record
    for row in read_rows(run_dir):
        if row.get("what") == "submitted":
            submitted = row
    number = newest_attempt(run_dir)
    facts = read_json(os.path.join(run_dir, "attempts", str(number), "attempt.json"))
    if facts.get("outcome") == "completed":
        return facts, {}
    if not facts or number <= submitted.get("after", 0):  # it was started again since
        return {}, submitted
    if "job" in submitted or "job" in facts:
        return facts, {"job": facts.get("next_job") or facts.get("job") or submitted.get("job")}
    return facts, facts


def newest_attempt(run_dir: str) -> int:
    try:
        names = os.listdir(os.path.join(run_dir, "attempts"))
    except OSError:
        return 0
    return max((int(name) for name in names if name.isdigit()), default=0)


def read_json(path: str) -> Record:
    """Return a record; an empty one for a file that is missing, torn or foreign."""
    try:
        with open(path) as file:
            found = json.load(file)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def read_rows(run_dir: str) -> List[Record]:
    """Return what was written down of the starts of a run, and where its jobs went since."""
    rows = []
    try:
        with open(os.path.join(run_dir, "control.jsonl")) as file:
            lines = file.read().splitlines()
    except OSError:
        lines = []
    for line in lines:
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return add_moves([row for row in rows if isinstance(row, dict)], run_dir, read_json)


def add_moves(rows: List[Record], run_dir: str, read: Callable[[str], Record]) -> List[Record]:
    """Return the rows with those of jobs that went behind another job: each follows the submission
    of the job that made it. `read` returns the record in a file."""
    found = []  # type: List[Record]
    seen: Set[str] = set()
    for row in rows:
        found.append(row)
        job = row.get("job") if row.get("what") == "submitted" else None
        while isinstance(job, str) and job not in seen:
            seen.add(job)
            behind = read(move_file(run_dir, job))
            job = behind.get("job")
            if isinstance(job, str):
                row = dict(row, job=job, behind=behind.get("behind"), t=behind.get("t"))
                found.append(row)
    return found


def move_file(run_dir: str, job: str) -> str:
    """The file that a job leaves which went behind another one: the id of the job in its place."""
    return os.path.join(run_dir, "submissions", "moved-%s.json" % os.path.basename(job))


# in a job of Slurm ----------------------------------------------------------------------------------


def is_queued(last: Record) -> bool:
    """Return whether Slurm still has the job, or does not say."""
    job = str(last.get("job") or "")
    if not job:
        return False
    done = subprocess.run(
        ["squeue", "--noheader", "--states=all", "--format=%T", "--jobs=" + job],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
    )
    if done.returncode != 0:
        return "Invalid job id" not in done.stderr
    return any(state in QUEUED for state in done.stdout.split())


def go_behind(run_dir: str, own: str, other: str) -> None:
    """Submit the script of this run again, behind another job, and leave word of it."""
    env = {
        name: value
        for name, value in os.environ.items()
        if name == "SLURM_CONF" or not name.startswith(INHERITED)
    }
    script = os.path.join(run_dir, "job.sh")
    words = ["sbatch", "--parsable", "--dependency=afterany:" + other, script]
    said = subprocess.check_output(words, env=env, universal_newlines=True)
    job = said.strip().partition(";")[0]
    path = move_file(run_dir, own)
    with open(path + ".new", "w") as file:
        json.dump({"t": time.time(), "job": job, "behind": other}, file)
    os.replace(path + ".new", path)
    print("rampup: job %s takes its place, behind job %s" % (job, other), flush=True)


def main() -> int:
    run_dir, own = sys.argv[1:]
    word, detail = decide(run_dir, is_queued)
    if word == NEVER:
        print(detail)
        return NEVER_CODE
    if word == WAIT:
        go_behind(run_dir, own, detail)
        return BEHIND_CODE
    return GO_CODE


if __name__ == "__main__":
    sys.exit(main())
