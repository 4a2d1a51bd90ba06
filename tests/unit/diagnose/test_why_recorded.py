"""`rampup why` on recorded messages that can't be provoked here, on hostile files, and problems.toml
itself."""

import json
import random
import re
import string
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import pytest

from rampup import rank
from rampup.diagnose.why.clues import Clue, Source, collect
from rampup.diagnose.why.explain import (
    PROBLEMS_FILE,
    Answer,
    Problem,
    Signs,
    explain,
    find_match,
    parse_problems,
    read_problems,
)
from rampup.diagnose.why.logs import (
    Frame,
    clean,
    find_traces,
    find_users_frame,
    pick_telling,
    read_tail,
    split_lines,
)
from rampup.diagnose.why.wording import Words
from rampup.rundir import failures as causes
from rampup.rundir import files as rundir
from rampup.rundir.files import AttemptDir, RunDir
from rampup.rundir.records import append_json, write_json
from rampup.runs.state import TORN, State

ROOT = Path(__file__).parents[3]
FAILED: dict[str, Any] = {
    "launcher": "spawn",
    "started": 100.0,
    "ended": 160.0,
    "outcome": "failed",
    "exit_code": 1,
}
ON_SLURM: dict[str, Any] = {
    **FAILED,
    "launcher": "srun",
    "job": "7",
    "world_size": 2,
    "nodes": "node[1-2]",
}


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    made = RunDir(tmp_path / "20260101-000000-it-abc234")
    with rundir.create_run(made.path, {"id": "abc234", "name": "it", "created": 90.0}):
        pass
    train = {"batch_size": 64, "accumulate": 1, "lr": 0.1, "clip": None}
    resources = {"mem": "4G", "nodes": 1, "tasks_per_node": 2}
    config = {
        "command": ["python", "train.py"],
        "argv": ["python"],
        "cwd": str(tmp_path),
        "time_s": 3600,
    }
    # nobody to ask
    gone = {"name": "site", "scheduler": "slurm", "slurm_conf": str(tmp_path / "slurm.conf")}
    write_json(
        made.config_file, {**config, "train": train, "resources": resources, "cluster": gone}
    )
    append_json(
        made.control_file,
        {"what": "submitted", "t": 95.0, "scheduler": "slurm", "cluster": "site", "job": "7"},
    )
    return made


def attempt_of(run: RunDir, facts: dict[str, Any], **files: str) -> AttemptDir:
    """An attempt with these logs: rank_0="...", slurm="..."."""
    attempt = run.claim_attempt()
    for name, text in files.items():
        path = (
            run.slurm_log("7")
            if name == "slurm"
            else attempt.path / f"{name.replace('_', '-')}.log"
        )
        path.write_text(text)
    write_json(attempt.facts_file, facts)
    return attempt


def ended(run: RunDir, state: str) -> None:
    """What Slurm said of the job, as rampup keeps it."""
    append_json(
        run.control_file,
        {"what": "ended", "t": 170.0, "job": "7:it-abc234", "state": state, "reason": ""},
    )


def raised(error: str) -> str:
    return f'epoch=1\nTraceback (most recent call last):\n  File "train.py", line 9, in <module>\n    go()\n{error}\n'


# words of machines that are not here --------------------------------------------------------------

OOM_LINE = "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=7.0. Some of your processes may have been killed"
RECORDED = {
    "gpu-memory": (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 15 GiB",
        "accumulate=2",
    ),
    "gpu-assertion": (
        "RuntimeError: CUDA error: device-side assert triggered\nCUDA kernel errors might be",
        "device=cpu",
    ),
    "collective-timeout": (
        "RuntimeError: [../gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation",
        "TORCH_DISTRIBUTED_DEBUG=DETAIL",
    ),
    "shared-memory-full": (
        "RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that dataloader's "
        "workers are out of shared memory. Please try to raise your shared memory limit.",
        "num_workers=0",
    ),
    "loader-killed": (
        "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed.",
        "num_workers=0",
    ),
    "peer-lost": (
        "RuntimeError: [/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:27564",
        "rampup logs abc234",
    ),
    "told": ("", "use fewer letters"),
}


@pytest.mark.parametrize("problem", RECORDED)
def test_recorded_exceptions(run: RunDir, problem: str) -> None:
    error, remedy = RECORDED[problem]
    attempt = attempt_of(run, {**FAILED, "failed_rank": 0, "world_size": 2}, rank_0=raised(error))
    if not error:
        words = {
            "t": 150.0,
            "rank": 0,
            "type": "RampupError",
            "message": "a bad name",
            "hint": "use fewer letters",
        }
        write_json(attempt.error_file(0), words)
    answer = explain(run)
    assert (answer.finding.id, answer.rank) == (problem, 0)
    assert remedy in answer.finding.remedy
    assert answer.known == (problem != "peer-lost")


@pytest.mark.parametrize(
    "line",
    [
        OOM_LINE,
        "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed.",
        "srun: error: node1: task 1: Out Of Memory",
        "slurmstepd: error: Job 7 exceeded memory limit (5000 > 4000), being killed",
    ],
)
def test_more_memory_than_the_job_may_have(run: RunDir, line: str) -> None:
    attempt_of(
        run,
        ON_SLURM,
        slurm=f"rampup: attempt 1 of job 7 begins\n{line}\nsrun: error: node1: task 1: Killed\n",
    )
    answer = explain(run)
    assert (answer.finding.id, answer.finding.remedy) == (
        "memory-of-job",
        "rampup resume abc234 --mem 8G",
    )
    assert (answer.evidence[0].file, answer.evidence[0].line) == ("slurm-7.log", 2)


@pytest.mark.parametrize(
    ("state", "problem"),
    [
        ("OUT_OF_MEMORY", "memory-of-job"),
        ("DEADLINE", "deadline"),
        ("NODE_FAIL", "node-lost"),
        ("PREEMPTED", "preempted"),
        ("TIMEOUT", "time-limit"),
    ],
)
def test_slurms_word_alone(run: RunDir, state: str, problem: str) -> None:
    attempt_of(run, {**ON_SLURM, "exit_code": 143}, slurm="rampup: attempt 1 of job 7 begins\n")
    ended(run, state)
    answer = explain(run)
    assert answer.finding.id == problem
    assert answer.evidence[0].file == "control.jsonl" and answer.evidence[0].line == 2


def test_a_job_of_which_nobody_knows(
    run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    attempt_of(
        run, {key: value for key, value in ON_SLURM.items() if key not in ("outcome", "ended")}
    )
    answer = explain(run)
    assert (answer.finding.id, answer.known) == (
        "forgotten",
        False,
    ) and "slurm-7.log" in answer.finding.remedy


def test_killed_while_the_memory_was_full(run: RunDir) -> None:
    attempt = attempt_of(
        run, {**FAILED, "failed_rank": 1, "exit_code": 137, "world_size": 2}, rank_1="hello\n"
    )
    append_json(
        attempt.system_file("here"), {"t": 150.0, "mem_used_mb": 7900, "mem_total_mb": 8000}
    )
    answer = explain(run)
    assert (answer.finding.id, answer.rank, answer.finding.remedy[:12]) == (
        "memory-killed",
        1,
        "accumulate=2",
    )
    assert "99% of the memory" in answer.evidence[1].text


def test_a_run_that_hung_until_its_limit(run: RunDir) -> None:
    facts = {
        **FAILED,
        "outcome": "timeout",
        "exit_code": 143,
        "ended": time.time(),
        "cause": "the time limit was reached",
    }
    attempt = attempt_of(run, facts, rank_0="hello\n")
    for row in range(10):
        append_json(attempt.metrics_file, {"step": row, "loss": 1.0, "t": 100.0 + row})
    assert explain(run).finding.id == "time-limit"
    write_json(attempt.facts_file, {**facts, "ended": time.time() + 1000})
    answer = explain(run)
    assert (
        answer.finding.id == "hung-until-limit"
        and "although there was a row of metrics every 1.0 s" in answer.finding.cause
    )


def test_what_the_launcher_says_itself(run: RunDir) -> None:
    cause = "it asked to be started again (code 85) more often than resources.requeues allows"
    attempt_of(run, {**FAILED, "exit_code": 85, "cause": cause})
    answer = explain(run)
    assert (answer.finding.id, answer.finding.cause, answer.known) == ("told", cause, True)


# rank.py, for real --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("problem", "options", "words"),
    [
        ("run-not-shared", ("--rank=1", "--run-hash=0000"), "node node1 sees another"),
        ("rank-cut-off", ("--rank=1",), "rank 1 on node node1 can't reach rank 0"),
        ("rank-missing", ("--rank=0",), "rank 1 never connected"),
        (
            "wrong-layout",
            ("--rank=0", "--world-size=5"),
            "5 tasks were started, the run has 2 ranks",
        ),
    ],
)
def test_a_rank_that_can_not_begin(
    run: RunDir, problem: str, options: tuple[str, ...], words: str
) -> None:
    attempt_of(run, {**ON_SLURM, "exit_code": 97})
    given = [
        "--attempt=1",
        "--world-size=2",
        "--node=node1",
        "--files-within=0.1",
        "--meet-within=0.3",
        *options,
    ]
    done = subprocess.run(
        [sys.executable, rank.__file__, str(run.path), *given], capture_output=True, timeout=20
    )
    assert done.returncode == rank.NOT_READY
    answer = explain(run)
    assert (answer.finding.id, words in answer.finding.cause) == (problem, True), answer
    assert answer.finding.remedy


def test_other_settings_are_named(run: RunDir) -> None:
    attempt = attempt_of(run, {**ON_SLURM, "exit_code": 97})
    message = "rank 1 on node node2 has other settings than rank 0"
    write_json(
        attempt.error_file(0),
        {"t": 1.0, "rank": 0, "type": "NotReady", "message": message, "hint": "look"},
    )
    assert explain(run).finding.id == "other-settings"


# who failed first ---------------------------------------------------------------------------------

LOST = {
    "t": 101.0,
    "rank": 0,
    "type": "RampupError",
    "message": "rank 0 lost contact with another rank",
    "hint": "no",
}
RAISED = {"t": 102.0, "rank": 1, "type": "ValueError", "message": "as planned", "traceback": ""}
KILLED_FIRST = (
    "srun: error: node2: task 1: Killed\nsrun: error: node1: task 0: Exited with exit code 1\n"
)
FELL_FIRST = (
    "srun: error: node1: task 0: Exited with exit code 1\nsrun: error: node2: task 1: Killed\n"
)
ENDED_BY_SRUN = "srun: error: node2: tasks 1-3,7: Exited with exit code 3\nsrun: error: node1: task 0: Terminated\n"


@pytest.mark.parametrize(
    ("seen", "slurm", "errors", "first"),
    [
        ((0, 1), "", [LOST, RAISED], (1, None)),
        ((1, 137), "", [LOST], (1, 137)),
        ((1, 3), "", [LOST], (1, 3)),
        ((0, 1), "", [LOST], (0, 1)),  # nobody else left a word
        ((None, 1), KILLED_FIRST, [LOST], (1, 137)),
        ((None, 1), FELL_FIRST, [LOST], (1, 137)),
        ((None, 1), FELL_FIRST, [], (0, 1)),
        ((None, 143), ENDED_BY_SRUN, [], (1, 3)),
        ((None, 1), "srun: error: node2: task 1: Aborted (core dumped)\n", [], (1, 134)),
        ((None, 74), "", [], (None, 74)),
        ((None, 143), "", [], (None, 143)),
    ],
)
def test_the_first_to_fail(
    run: RunDir,
    seen: tuple[int | None, int],
    slurm: str,
    errors: list[dict[str, Any]],
    first: tuple[Any, Any],
) -> None:
    attempt = attempt_of(run, ON_SLURM, slurm=f"rampup: attempt 1 of job 7 begins\n{slurm}")
    for error in errors:
        write_json(attempt.error_file(error["rank"]), error)
    found = causes.find_first_failure(attempt, *seen)
    assert (found.rank, found.code) == first
    who = f"rank {first[0]}" if first[0] is not None else f"the job ended with code {first[1]}"
    assert causes.explain_failure(attempt, *seen)[1].startswith(who)


def test_an_attempt_before_is_not_blamed_for_the_next(run: RunDir) -> None:
    said = "rampup: attempt 1 of job 7 begins\nslurmstepd: error: *** JOB 7 CANCELLED AT x DUE TO PREEMPTION ***\n"
    said += (
        "rampup: attempt 2 of job 7 begins\nsrun: error: node1: task 1: Exited with exit code 3\n"
    )
    for _ in range(2):
        attempt_of(run, ON_SLURM, slurm=said)
    answer = explain(run)
    assert (answer.finding.id, answer.rank, answer.evidence[0].text) == (
        "not-known",
        1,
        "code 3 of rank 1: srun: error: node1: task 1: Exited with exit code 3",
    )
    assert answer.before == ("attempt 1: a job with a higher priority took its nodes (preemption)",)


# text ---------------------------------------------------------------------------------------------


def test_a_line_is_safe_to_print() -> None:
    assert clean("\x1b[31mred\x1b[0m\x1b]0;title\x07 \x00bad\u202e\tend\r\n") == "red bad    end"
    assert clean("10%\r20%\r100% done") == "100% done"
    assert clean("x" * 1000, 20) == "x" * 19 + "…"
    assert clean("  kept") == "  kept"


def test_the_end_of_a_long_file_keeps_its_numbers(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("".join(f"line {number}\n" for number in range(1, 20_001)))
    found = read_tail(tmp_path / "log")
    assert found[-1] == (20_000, "line 20000")
    assert all(line.text == f"line {line.number}" for line in found) and 1000 < len(found) < 10_000
    assert read_tail(tmp_path / "absent") == []


def test_tracebacks_are_found_and_lead_to_the_users_code(tmp_path: Path) -> None:
    text = f"""[rank1]: Traceback (most recent call last):
[rank1]:   File "{tmp_path}/train.py", line 7, in <module>
[rank1]:     go()
[rank1]:     ^^^^
[rank1]:   File "{tmp_path}/.venv/lib/python3.11/site-packages/torch/nn.py", line 9, in go
[rank1]: RuntimeError: shapes do not fit
[rank1]: CUDA kernel errors might be reported later
Traceback (most recent call last):
  File "/usr/bin/torchrun", line 8, in <module>
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
"""
    traces = find_traces(split_lines(text))
    found = pick_telling(traces)
    assert found is not None and found.error.text == "RuntimeError: shapes do not fit"
    assert find_users_frame(traces, [tmp_path]) == Frame(f"{tmp_path}/train.py", 7)
    assert find_traces(split_lines("Traceback (most recent call last):\nnothing else")) == []
    assert pick_telling([]) is None


@pytest.mark.parametrize(
    ("problem", "told", "remedy"),
    [
        (
            "modules",
            "module load GCC/8.3.0 failed on node1: it is unknown",
            "module spider GCC/8.3.0 there",
        ),
        (
            "modules",
            "there is no command module on node1: a login shell does not define it",
            "module_init",
        ),
        (
            "environment",
            "environment /proj/v can't be read on node1: it has no bin/activate there",
            "--env",
        ),
    ],
)
def test_what_the_ranks_need_is_not_there(
    run: RunDir, problem: str, told: str, remedy: str
) -> None:
    said = f"rampup: attempt 1 of job 7 begins on node1\nrampup: error: {told}\n"
    attempt_of(run, {**ON_SLURM, "exit_code": 78, "cause": told}, slurm=said)
    answer = explain(run, State("failed", 78, told))
    assert (answer.finding.id, answer.finding.cause, answer.known) == (problem, told, True)
    assert remedy in answer.finding.remedy


# problems.toml ------------------------------------------------------------------------------------


def patterns(signs: Signs) -> list[str]:
    """All regular expressions of the signs."""
    found: list[str] = []
    for sign in signs.values():
        found += [sign] if isinstance(sign, str) else sign
    return found


def groups(problem: Problem) -> set[str]:
    """The named groups of a problem."""
    both = [*patterns(problem.signs), *patterns(problem.also)]
    return {name for pattern in both for name in re.compile(pattern).groupindex}


def names(template: str) -> set[str]:
    """The words in braces."""
    return {name for _, name, _, _ in string.Formatter().parse(template) if name}


@pytest.mark.parametrize("problem", read_problems(), ids=lambda problem: problem.id)
def test_every_problem_is_a_sentence_with_a_remedy(run: RunDir, problem: Problem) -> None:
    attempt = attempt_of(run, {**FAILED, "failed_rank": 0}, rank_0=raised("ValueError: x"))
    case = collect(run, attempt, State("failed", 1))
    known = groups(problem) | {name for name in vars(Words) if not name.startswith("_")}
    for template in (problem.cause, problem.remedy):
        unknown = names(template) - known
        assert not unknown, f"{problem.id}: neither a named group nor a word of wording.py"
        for matched in ({}, dict.fromkeys(groups(problem), "x")):
            text = template.format_map(Words(case, matched, True))
            assert text.isprintable() and "None" not in text, problem.id
    assert problem.signs and problem.cause, problem.id
    assert problem.remedy or problem.harmless, problem.id


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("couse = 'x'", "problem 'disk-on-fire': Object contains unknown field `couse`"),
        ("signs.slrum-log = 'x'", "problem 'disk-on-fire': Invalid enum value 'slrum-log'"),
        ("signs.exit = 9", "problem 'disk-on-fire': Expected `str | array`, got `int`"),
        ("remedy = false", "problem 'disk-on-fire': Expected `str`, got `bool`"),
        ("", "problem 'disk-on-fire': Object missing required field `signs`"),
        ("[[problems]]", "only [[problem]] is allowed here, not problems"),
    ],
)
def test_a_mistake_in_the_file_names_the_problem(row: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_problems(f'[[problem]]\nid = "disk-on-fire"\ncause = "it burns"\n{row}\n')


def test_the_head_of_the_file_describes_every_key_and_source() -> None:
    head = PROBLEMS_FILE.read_text().partition("[[problem]]\n")[0]
    for name in (*Problem.__struct_fields__, *get_args(Source)):
        assert re.search(rf"^#   {name} +\S", head, re.MULTILINE), name


def test_a_damaged_run_directory_is_recognised(run: RunDir) -> None:
    """The sign is the very text of runs/state.py."""
    answer = explain(run, State("failed", None, f"attempts/1/attempt.json, {TORN}"))
    assert (answer.finding.id, answer.known) == ("not-known", False)
    assert answer.finding.cause.startswith("not known: attempts/1/attempt.json, which")


def test_a_group_that_matched_nothing(run: RunDir) -> None:
    answer = explain(run, State("cancelled"))
    assert answer.finding.cause == "cancelled, but not by rampup: no message"


@pytest.mark.parametrize("problem", read_problems(), ids=lambda problem: problem.id)
def test_the_example_of_a_problem_is_answered_with_it(problem: Problem) -> None:
    """With no other: one that is more general stands below."""
    clues = [Clue(source, text) for source, text in problem.example.items()]
    match = find_match(clues, read_problems())
    assert match is not None and match.problem is problem


LOGS = {"exception", "rank-log"}
RECORDABLE = LOGS | {"state", "slurm-state", "slurm-log", "exit", "rampup-error", "ranks"}
"""Sources that a run directory is made from here; the others are measured in real runs."""


def record(run: RunDir, example: Mapping[Source, str]) -> State:
    """Leave in a run directory what the example says, and return the state of such a run."""
    ending = example.get("exit", "code 1 of rank 0").split()
    code = int(ending[1]) + 128 * (ending[0] == "signal")
    rank_number = int(ending[-1]) if ending[-1].isdigit() else None
    slurm = f"rampup: attempt 1 of job 7 begins\n{example.get('slurm-log', '')}\n"
    is_slurm = bool({"slurm-log", "slurm-state"} & example.keys())
    ranks = int(example.get("ranks", "2 ranks").split()[0])
    facts = {**(ON_SLURM if is_slurm else FAILED), "exit_code": code, "world_size": ranks}
    if not is_slurm and rank_number is not None and {"exit", *LOGS} & example.keys():
        facts["failed_rank"] = rank_number
    log = raised(example["exception"]) if "exception" in example else example.get("rank-log", "")
    attempt = attempt_of(run, facts, **{f"rank_{rank_number or 0}": f"{log}\n"}, slurm=slurm)
    if "slurm-state" in example:
        ended(run, example["slurm-state"])
    if "rampup-error" in example:
        error = {"t": 150.0, "rank": 0, "type": "RampupError", "hint": "look"}
        write_json(attempt.error_file(0), {**error, "message": example["rampup-error"]})
    name, _, cause = example.get("state", "failed").partition(": ")
    return State(name, code, cause)


@pytest.mark.parametrize(
    "problem",
    [each for each in read_problems() if each.example.keys() <= RECORDABLE],
    ids=lambda problem: problem.id,
)
def test_a_run_that_left_the_example_is_explained(run: RunDir, problem: Problem) -> None:
    assert explain(run, record(run, problem.example)).finding.id == problem.id


def test_every_problem_has_a_run_an_example_and_a_place_in_the_docs() -> None:
    docs = ROOT / "docs"
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_why*.py"))
    page = (docs / "troubleshooting.md").read_text()
    listed = (docs / "reference" / "problems.md").read_text()  # made from the file
    for problem in read_problems():
        assert problem.example, problem.id
        is_recorded = problem.example.keys() <= RECORDABLE
        assert is_recorded or f'"{problem.id}"' in tests, f"{problem.id}: add a real run"
        assert f"`{problem.id}`" in listed, problem.id
    examples = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert examples and all(text in PROBLEMS_FILE.read_text() for text in examples)


FOREIGN = b'{"rank": "x", "exit_code": [], "t": "y", "world_size": -1, "step": {}, "cpu_s": "", "train": 3, "mem": 1}'


def test_hostile_files_never_stop_an_answer(run: RunDir) -> None:
    """Empty, cut, overwritten: there is an answer all the same, and it can be printed."""
    chance = random.Random(7)
    attempt = attempt_of(
        run, {**ON_SLURM, "failed_rank": 0}, rank_0=raised("ValueError: x"), slurm=KILLED_FIRST
    )
    write_json(attempt.error_file(0), RAISED)
    append_json(attempt.metrics_file, {"step": 1, "loss": None, "t": 1.0})
    append_json(
        attempt.system_file("here"),
        {"t": 150.0, "mem_used_mb": 7900, "mem_total_mb": 8000, "cpu_s": 1.0},
    )
    files = [path for path in run.path.rglob("*") if path.is_file()]
    whole = {path: path.read_bytes() for path in files}
    odd = [b"", b"\0\xff\x1b[31m", b"[]", b"{}", b"null", FOREIGN]
    for _ in range(150):
        path = chance.choice(files)
        data = whole[path]
        path.write_bytes(chance.choice([*odd, data[: chance.randrange(len(data) + 1)], data * 3]))
        answer: Answer = explain(
            run, chance.choice([None, State("failed", 1), State("timeout"), State("running")])
        )
        assert answer.finding.cause and answer.finding.cause.isprintable()
        json.dumps(answer)
        path.write_bytes(data)


# other people's programs --------------------------------------------------------------------------

DOWNLOAD = """RuntimeError: Error downloading train-images-idx3-ubyte.gz:
Tried https://ossci-datasets.s3.amazonaws.com/mnist/, got:
<urlopen error [Errno -2] Name or service not known>
"""
FOREIGN_ERRORS = {
    "RuntimeError: Distributed package doesn't have NCCL built in": (
        "gpu-missing",
        'backend="gloo"',
    ),
    "ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!": (
        "gpu-missing",
        'backend="gloo"',
    ),
    "RuntimeError: Distributed package doesn't have MPI built in.": (
        "backend-missing",
        "env://",
    ),
    "RuntimeError: Cannot access accelerator device when none is available.": ("gpu-missing", ""),
    "AttributeError: module 'torch._C' has no attribute '_cuda_setDevice'": ("gpu-missing", ""),
    "ValueError: SyncBatchNorm layers only work with GPU modules": ("gpu-missing", ""),
    DOWNLOAD: ("no-network", "download it before"),
    "httpx.ConnectError: All connection attempts failed": ("no-network", "download it before"),
    "ModuleNotFoundError: Requirement 'jsonargparse[signatures]>=4.27.7' not met. HINT: Try": (
        "module-missing",
        "python -m pip install 'jsonargparse[signatures]>=4.27.7'",
    ),
    "RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:1275, remote process exited": (
        "peer-lost",
        "rampup logs",
    ),
    "RuntimeError: Gloo connectFullMesh failed with timed out connecting": (
        "peer-lost",
        "rampup logs",
    ),
    "ValueError: gloo is not a colour": ("exception", "correct"),
}


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("error", FOREIGN_ERRORS)
def test_errors_of_other_peoples_programs(run: RunDir, error: str, recorded: bool) -> None:
    """On one of two ranks: the other was ended."""
    attempt = attempt_of(
        run,
        {**FAILED, "failed_rank": 1, "world_size": 2},
        rank_0="",
        rank_1="" if recorded else raised(error),
    )
    if recorded:
        kind, _, message = error.partition(": ")
        trace = raised(error).partition("\n")[2]
        words = {"t": 150.0, "rank": 1, "type": kind, "message": message, "traceback": trace}
        write_json(attempt.error_file(1), words)
    answer = explain(run)
    problem, remedy = FOREIGN_ERRORS[error]
    assert (answer.finding.id, answer.rank) == (problem, 1), answer
    assert remedy in answer.finding.remedy


def test_a_program_of_mpi_under_plain_srun(run: RunDir) -> None:
    attempt_of(
        run,
        {**ON_SLURM, "failed_rank": 1},
        rank_1=(
            'The application appears to have been direct launched using "srun",\n'
            "but OMPI was not built with SLURM's PMI support and therefore cannot\nexecute.\n"
            "[vm:19361] Local abort before MPI_INIT completed completed successfully, but am not able"
            " to aggregate error messages, and not able to guarantee that all other processes were killed!\n"
        ),
    )
    answer = explain(run)
    assert answer.finding.id == "mpi-by-srun" and answer.known
    assert "--launcher mpirun" in answer.finding.remedy and "pmix" in answer.finding.remedy


def test_a_message_with_an_array_belongs_to_the_error(run: RunDir) -> None:
    """Keras 3 prints a whole batch; what stands below decides nothing."""
    rows = "".join(f"       [0.{number}, 0.1, 0.2],\n" for number in range(40))
    error = (
        "ValueError: Attempt to convert a value (PerReplica:{\n  0: <tf.Tensor: numpy=\narray([\n"
        f"{rows}       [1.0]], dtype=float32)>\n}}) with an unsupported type (PerReplica) to a Tensor."
    )
    attempt_of(run, {**FAILED, "failed_rank": 0}, rank_0=raised(error))
    answer = explain(run)
    assert answer.finding.id == "exception"
    assert answer.finding.cause.startswith("rank 0: ValueError: Attempt to convert a value")


def test_a_traceback_that_more_output_follows_did_not_end_the_program(run: RunDir) -> None:
    later = "".join(f"epoch {number}\n" for number in range(40))
    attempt_of(run, {**FAILED, "failed_rank": 0}, rank_0=raised("ValueError: caught") + later)
    assert explain(run).finding.id == "not-known"


TORCHRUN_SAYS = """E1119 05:00:00.123000 99 torch/distributed/elastic/multiprocessing/api.py:984] failed (exitcode: 1)
Traceback (most recent call last):
  File "/venv/bin/torchrun", line 8, in <module>
    sys.exit(main())
  File "/venv/lib/python3.11/site-packages/torch/distributed/launcher/api.py", line 300, in launch_agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
bad.py FAILED
------------------------------------------------------------
""" + "".join(f"  field_{number}: value\n" for number in range(20))


def test_the_traceback_inside_the_output_of_the_users_own_torchrun(run: RunDir) -> None:
    text = raised("ModuleNotFoundError: No module named 'nosuchmodule'") + TORCHRUN_SAYS
    attempt_of(run, {**FAILED, "failed_rank": 0}, rank_0=text)
    answer = explain(run)
    assert answer.finding.id == "module-missing"
    assert "nosuchmodule" in answer.finding.cause
    assert [clue.line for clue in answer.evidence if clue.file.endswith("rank-0.log")][:1] == [5]
    assert len(answer.evidence) <= 3, "nothing of the parent's own traceback but the last line"


def test_a_line_that_called_a_package_is_looked_at_and_not_corrected(run: RunDir) -> None:
    text = raised("ValueError: odd").replace(
        "ValueError",
        '  File "/venv/lib/python3.11/site-packages/torch/nn.py", line 3, in f\n    g()\nValueError',
    )
    attempt_of(run, {**FAILED, "failed_rank": 0}, rank_0=text)
    assert explain(run).finding.remedy.startswith("look at train.py:9, then: rampup resume")
    attempt_of(run, {**FAILED, "failed_rank": 0}, rank_0=raised("ValueError: odd"))
    assert explain(run).finding.remedy.startswith("correct train.py:9, then: rampup resume")


def test_a_variable_that_only_ranks_have(run: RunDir) -> None:
    attempt_of(run, {**FAILED, "failed_rank": 0}, rank_0=raised("KeyError: 'WORLD_SIZE'"))
    answer = explain(run)
    assert answer.finding.id == "ranks-not-asked-for" and "WORLD_SIZE" in answer.finding.cause
    attempt_of(
        run, {**FAILED, "failed_rank": 0, "world_size": 2}, rank_0=raised("KeyError: 'TF_CONFIG'")
    )
    assert explain(run).finding.id == "exception", "several ranks have it: it is something else"


APART = {
    "node": "here",
    "looks": 9,
    "cpu_s": 20.0,
    "enough_s": 5.0,
    "notice_s": 300.0,
    "met": "",
    "blind": False,
    "doubt": "",
    "mpi": False,
    "links": [],
    "listens": [],
    "shared": [],
}


def write_contacts(attempt: AttemptDir, **changes: Any) -> None:
    for number in (0, 1):
        write_json(attempt.contact_file(number), {**APART, "rank": number, **changes})


@pytest.mark.parametrize(
    ("changes", "command", "remedy"),
    [
        ({}, ["python", "train.py"], "or leave out --tasks-per-node 2; --independent says"),
        (
            {"mpi": True},
            ["python", "train.py"],
            "ranks of MPI need --launcher mpirun, on a cluster also pmix",
        ),
        ({}, ["/opt/bin/torchrun", "x.py"], "--launcher torchrun and no torchrun in the command"),
        ({}, ["python", "-m", "torch.distributed.run", "x.py"], "leave out --tasks-per-node 2"),
        ({}, ["python", "train.py", "fabric"], "the program must join its ranks"),
        ({}, ["mpirun", "-n", "2", "x"], "--launcher mpirun and no mpirun in the command"),
    ],
)
def test_ranks_that_never_met(
    run: RunDir, changes: dict[str, Any], command: list[str], remedy: str
) -> None:
    write_json(run.config_file, {**run.config, "command": command})
    attempt = attempt_of(run, {**ON_SLURM, "outcome": "completed", "exit_code": 0})
    write_contacts(attempt, **changes)
    found = explain(run).finding
    assert (found.id, found.level) == ("ranks-apart", "problem")
    assert found.cause == "the 2 ranks never talked to each other: each trained alone"
    assert remedy in found.remedy


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({"met": "MPI"}, "completed"),
        ({"blind": True}, "completed"),
        ({"cpu_s": 4.9}, "completed"),
        ({"links": "damaged"}, "completed"),
        ({}, "failed"),
        ({}, "cancelled"),  # before every rank had computed for five minutes
    ],
)
def test_ranks_of_which_that_is_not_known(
    run: RunDir, changes: dict[str, Any], outcome: str
) -> None:
    attempt = attempt_of(run, {**ON_SLURM, "outcome": outcome, "exit_code": 0})
    write_contacts(attempt, **changes)
    assert explain(run).finding.id != "ranks-apart"


def test_ranks_that_are_meant_to_work_alone(run: RunDir) -> None:
    resources = {**run.config["resources"], "independent": True}
    write_json(run.config_file, {**run.config, "resources": resources})
    attempt = attempt_of(run, {**ON_SLURM, "outcome": "completed", "exit_code": 0})
    write_contacts(attempt)
    assert explain(run).finding.id == "completed"


def test_ranks_that_met_in_any_attempt_have_met(run: RunDir) -> None:
    first = attempt_of(run, {**ON_SLURM, "outcome": "again", "exit_code": 0})
    write_contacts(first, met="port 12000")
    last = attempt_of(run, {**ON_SLURM, "outcome": "completed", "exit_code": 0})
    write_contacts(last)
    assert explain(run).finding.id == "completed"
