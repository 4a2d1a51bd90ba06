"""The scripts of jobs that serve several runs: what they ask for, and that bash and shellcheck can
read them."""

import shutil
import subprocess
from pathlib import Path

import pytest

from rampup.core.finding import Finding
from rampup.core.spec import RunSpec
from rampup.errors import Refused
from rampup.rundir import claims
from rampup.rundir.files import RunDir
from rampup.runs import stop
from rampup.runs.plan import CheckedPlan, Plan
from rampup.schedulers.slurm import arrays
from rampup.schedulers.slurm import packs as pack
from rampup.study import launch
from rampup.study.grid import Point
from rampup.study.members import Member
from unit.job_scripts import make_spec

FOLDER = Path("/shared/it's 100 %/runs/studies/s/array-1")
SPECS = {
    "plain": make_spec(),
    "gpus": make_spec(
        {"nodes": 2, "tasks_per_node": 2, "gpus_per_node": 2, "mem": "16G", "time": "60"}
    ),
    "gres": make_spec({"gpus_per_node": 1}, gpu_directive="gres", gpu_type="a100"),
    "no-requeue": make_spec(requeue=False),
    "torchrun": make_spec({"tasks_per_node": 2, "cpus_per_task": 3}, launcher="torchrun"),
}


def array_of(spec: RunSpec, count: int = 50, throttle: int | None = None) -> str:
    return arrays.script(
        "s", FOLDER, "s-abc234", arrays.request_of(spec, Path("/runs")), count, throttle
    )


def pack_of(spec: RunSpec, at_once: int = 3) -> str:
    return pack.script("s", FOLDER, "s-abc234", spec, [1] * 8, at_once)


@pytest.mark.parametrize("kind", ["array", "pack"])
@pytest.mark.parametrize("name", SPECS)
def test_shells_can_read_every_script(name: str, kind: str, tmp_path: Path) -> None:
    file = tmp_path / "script.sh"
    file.write_text(array_of(SPECS[name]) if kind == "array" else pack_of(SPECS[name]))
    subprocess.run(["bash", "-n", file], check=True)
    if shutil.which("shellcheck"):
        done = subprocess.run(["shellcheck", file], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


def test_an_array_asks_for_what_each_of_its_runs_asks_for() -> None:
    text = array_of(SPECS["gpus"], count=50, throttle=4)
    for line in (
        "--nodes=2",
        "--ntasks-per-node=2",
        "--gpus-per-node=2",
        "--mem=16G",
        "--array=0-49%4",
        "--requeue",
    ):
        assert f"#SBATCH {line}\n" in text
    assert '--output="/shared/it\'s 100 %%/runs/studies/s/array-1/%a/slurm-%A_%a.log"' in text
    assert (
        "'/shared/it'\"'\"'s 100 %/runs/studies/s/array-1'/\"$SLURM_ARRAY_TASK_ID\"/job.sh" in text
    )
    assert "#SBATCH --array=0-0\n" in array_of(SPECS["plain"], count=1)


def test_runs_that_ask_for_the_same_can_be_one_array() -> None:
    asked = [
        arrays.request_of(spec, Path("/runs"))
        for spec in (make_spec(), make_spec({"mem": "1G"}), make_spec())
    ]
    assert asked[0] == asked[2] != asked[1]


def test_a_pack_asks_for_all_that_go_at_once() -> None:
    text = pack_of(SPECS["gpus"])
    for line in (
        "--nodes=2",
        "--ntasks-per-node=6",
        "--cpus-per-task=1",
        "--gpus-per-node=6",
        "--mem=48G",
    ):
        assert f"#SBATCH {line}\n" in text
    assert "export SLURM_GPUS_PER_NODE=2\n" in text, "the share of one run"
    assert "export SLURM_GPUS_PER_NODE=a100:1\n" in pack_of(SPECS["gres"])
    torchrun = pack_of(SPECS["torchrun"])
    assert (
        "#SBATCH --ntasks-per-node=1\n" in torchrun and "#SBATCH --cpus-per-task=18\n" in torchrun
    )


def test_memory_of_the_site_is_multiplied_too() -> None:
    assert "#SBATCH --mem=24000\n" in pack_of(make_spec(sbatch={"mem": "8000"}))
    assert "#SBATCH --mem=0\n" in pack_of(make_spec({"mem": "0"})), "all that a node has"
    with pytest.raises(Refused, match="can't be multiplied"):
        pack_of(make_spec({"mem": "1.5G"}))


def test_mpirun_can_not_be_packed() -> None:
    with pytest.raises(Refused, match="mpirun"):
        pack_of(make_spec(launcher="mpirun"))


# the pack's own functions, run by bash ------------------------------------------------------------


def ask_pack(tmp_path: Path, question: str) -> str:
    """What functions of the script say of the run in tmp_path/pack-1/0."""
    folder = tmp_path / "pack-1"
    text = pack.script("s", folder, "s-abc234", make_spec(), [1], 1)
    functions = text[text.index("# Whether the run still") : text.index("stopped=")]
    lines = f"set -u\nfolder='{folder}'\nstarts=(1)\n{functions}\n{question}\n"
    done = subprocess.run(["bash", "-c", lines], capture_output=True, text=True, check=True)
    assert not done.stderr
    return done.stdout


@pytest.fixture
def packed(tmp_path: Path) -> RunDir:
    run = RunDir(tmp_path / "pack-1" / "0")
    run.path.mkdir(parents=True)
    (tmp_path / "pack-1.sh").write_text("")
    claims.claim(run, 1)
    run.record("submitting", task=0, cluster="site", job_name="s-abc234", packed=True)
    return run


@pytest.mark.parametrize(
    ("outcome", "done"),
    [
        ("completed ", "yes"),
        ("failed no module on node1", "yes"),
        ("cancelled stopped gracefully, on request", "yes"),
        ("timeout ", "no"),  # it has saved, and continues later
        ("timeout resources.requeues allows no more", "yes"),
        ("stopped ", "no"),
        ("", "no"),  # killed before it recorded an end
        (None, "no"),
    ],
)
def test_a_pack_knows_what_is_left_to_do(
    packed: RunDir, tmp_path: Path, outcome: str | None, done: str
) -> None:
    if outcome is not None:
        attempt = packed.claim_attempt()
        if outcome:
            attempt.outcome_file.write_text(f"{outcome}\n")
    assert ask_pack(tmp_path, "if is_done 0; then echo yes; else echo no; fi").strip() == done


def test_an_attempt_from_before_the_pack_is_not_its_own(packed: RunDir, tmp_path: Path) -> None:
    import os

    file = packed.claim_attempt().outcome_file
    file.write_text("failed \n")
    assert ask_pack(tmp_path, "outcome_of 0") == "failed\n"
    os.utime(file, (1000, 1000))
    assert ask_pack(tmp_path, "outcome_of 0") == "\n"


def test_a_pack_leaves_alone_what_was_taken_from_it(packed: RunDir, tmp_path: Path) -> None:
    ask = "if is_ours 0; then echo yes; else echo no; fi"
    assert ask_pack(tmp_path, ask) == "yes\n"
    packed.record("submitted", scheduler="slurm", job="7", job_name="s-abc234", packed=True)
    packed.record("ended", job="7:s-abc234", state="RUNNING", reason="")
    assert ask_pack(tmp_path, ask) == "yes\n"
    stop.withdraw(packed)
    assert ask_pack(tmp_path, ask) == "no\n"
    (packed.submissions / "1.cancelled").unlink()
    with claims.reserved_room(packed):
        assert ask_pack(tmp_path, ask) == "yes\n"
    claims.claim(packed, 2)
    assert ask_pack(tmp_path, ask) == "no\n"


def test_what_is_noted_is_of_the_run_that_was_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_size(plan: Plan) -> CheckedPlan:
        tasks = f"{plan.spec.resources.tasks_per_node} tasks"
        return CheckedPlan(plan, (Finding("size", "note", "", tasks, "fewer"),))

    monkeypatch.setattr(launch, "preflight", of_size)
    monkeypatch.setattr(launch, "preflight_alike", lambda spec: None)
    members = [Member(Point({"p": number}, make_spec(), str(number))) for number in range(3)]
    said: list[str] = []
    launch.check(members, Path("/runs"), 3, said.append)
    assert said == [f"note: {make_spec().resources.tasks_per_node} tasks; try: fewer"]
