"""The catalogue: doctor tells what is there, preflight refuses what can't work, each with a
remedy."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rampup.config.clusters import load
from rampup.core import hardware
from rampup.core.finding import Finding
from rampup.core.spec import Cluster, Program, RecipeInfo, Resources, RunSpec
from rampup.datasets.sets import MNIST
from rampup.diagnose import doctor as catalogue
from rampup.diagnose.checks import machine, request, storage
from rampup.diagnose.doctor import doctor
from rampup.diagnose.preflight import preflight
from rampup.errors import Refused
from rampup.runs.plan import make_plan, outline_plan
from rampup.schedulers.slurm import check as slurm

RECIPE = RecipeInfo(
    name="mnist", about="", folder="/", engine="torch", entry="train:Mnist", extra="torch"
)
SPEC = RunSpec(
    name="x",
    kind="engine",
    recipe=RECIPE,
    command=(),
    train={"device": "auto", "precision": "fp32"},
    resources=Resources(),
    cluster=load("local"),
    origins={},
    config_file=None,
    cwd="/",
)
SLURM = replace(
    SPEC.cluster,
    name="site",
    scheduler="slurm",
    launcher="srun",
    max_nodes=None,
    max_tasks_per_node=None,
    shared=["/"],
)


def check(spec: RunSpec, root: Path) -> list[Finding]:
    """The notes of preflight, for a run that would live in `root`."""
    return list(preflight(make_plan(spec, root / "20260102-030405-x-abc234")).notes)


@pytest.fixture(autouse=True)
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No data sets, no GPUs, no nvidia-smi, whatever the tests run on."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(machine, "DEVICES", tmp_path / "dev")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setattr(machine, "has_apple_gpu", lambda: False)
    # schedulers/test_checks.py has that part
    monkeypatch.setattr(slurm, "check_queued", lambda spec, root, script: iter(()))


def program(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / "bin" / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def with_gpus(tmp_path: Path, count: int) -> None:
    program(
        tmp_path,
        "nvidia-smi",
        "".join(f"echo 'GPU {n}: Big One (UUID: GPU-{n})'\n" for n in range(count)),
    )


def refusal(tmp_path: Path, spec: RunSpec, runs_root: Path | None = None) -> Refused:
    with pytest.raises(Refused) as caught:
        check(spec, runs_root or tmp_path / "runs")
    assert caught.value.exit_code == 3 and caught.value.hint
    return caught.value


def asking(**resources: Any) -> RunSpec:
    return replace(SPEC, resources=Resources(**resources))


def training(**train: Any) -> RunSpec:
    return replace(SPEC, train={**SPEC.train, **train})


def commanding(cwd: Path, *words: str) -> RunSpec:
    return replace(SPEC, kind="command", recipe=None, train={}, command=words, cwd=str(cwd))


def needing(**needs: Any) -> RunSpec:
    return replace(SPEC, recipe=replace(RECIPE, **needs))


# preflight ----------------------------------------------------------------------------------------


def test_what_can_work_passes_and_nothing_is_written(tmp_path: Path) -> None:
    check(SPEC, tmp_path / "deep" / "runs")
    check(needing(requires=("json", "os.path")), tmp_path / "runs")
    check(
        replace(asking(nodes=500, tasks_per_node=4, gpus_per_node=4), cluster=SLURM),
        tmp_path / "runs",
    )
    assert not (tmp_path / "deep").exists() and not (tmp_path / "runs").exists()


def test_a_framework_that_is_not_installed(tmp_path: Path) -> None:
    error = refusal(tmp_path, needing(requires=("json", "nosuch.part")))
    assert error.message == "recipe mnist needs nosuch.part, which is not installed"
    assert error.hint == "pip install 'rampup[torch]'"
    assert refusal(tmp_path, needing(requires=("nosuch",), extra="")).hint == "pip install nosuch"


def test_data_that_is_absent_or_truncated(tmp_path: Path) -> None:
    spec = needing(data=("mnist",))
    assert refusal(tmp_path, spec).hint == "rampup fetch mnist"
    place = tmp_path / "cache" / "rampup" / "data" / "mnist"
    place.mkdir(parents=True)
    (place / MNIST.files[0].name).write_bytes(
        bytes.fromhex("00000803 0000ea60 0000001c 0000001c") + bytes(984)
    )
    error = refusal(tmp_path, spec)
    assert "train-images-idx3-ubyte has 1000 bytes, its header promises 47040016" in error.message
    assert error.hint == "rampup fetch mnist"
    assert "no data set 'mnits'" in refusal(tmp_path, needing(data=("mnits",))).message


@pytest.mark.parametrize(("key", "value", "allowed"), [
    ("tasks_per_node", 0, "1 to 64"),
    ("tasks_per_node", 1000, "1 to 64"),
    ("tasks_per_node", -1, "1 to 64"),
    ("nodes", 0, "1 to 1"),
])  # fmt: skip
def test_sizes_outside_the_range_of_the_cluster(
    tmp_path: Path, key: str, value: int, allowed: str
) -> None:
    error = refusal(tmp_path, asking(**{key: value}))
    assert error.message == f"{key} is {value}, cluster local allows {allowed}"
    assert f"--{key.replace('_', '-')}" in error.hint


def test_a_cluster_without_limits_still_needs_one_rank(tmp_path: Path) -> None:
    error = refusal(tmp_path, replace(asking(tasks_per_node=0), cluster=SLURM))
    assert "cluster site allows 1 or more" in error.message


def test_more_gpus_than_there_are(tmp_path: Path) -> None:
    assert (
        refusal(tmp_path, asking(gpus_per_node=1)).message
        == "gpus_per_node is 1, this machine has 0"
    )
    with_gpus(tmp_path, 2)
    check(asking(gpus_per_node=2), tmp_path / "runs")
    assert refusal(tmp_path, asking(gpus_per_node=3)).hint == "--gpus-per-node 2"
    assert refusal(tmp_path, asking(gpus_per_node=-1)).message == "gpus_per_node is -1"


def test_a_gpu_reserved_and_not_used(tmp_path: Path) -> None:
    with_gpus(tmp_path, 1)
    spec = replace(training(device="cpu"), resources=Resources(gpus_per_node=1))
    for cluster in (SPEC.cluster, SLURM):
        assert (
            "device=cpu does not use it"
            in refusal(tmp_path, replace(spec, cluster=cluster)).message
        )


@pytest.mark.parametrize(("kind", "ranks", "gpus", "level"), [
    ("command", 1, 4, "note"),
    ("command", 4, 2, "note"),
    ("script", 4, 2, "note"),
    ("engine", 1, 2, "note"),
    ("engine", 4, 2, "problem"),
    ("engine", 2, 2, None),
    ("engine", 4, 0, None),
])  # fmt: skip
def test_ranks_and_gpus(kind: Any, ranks: int, gpus: int, level: str | None) -> None:
    spec = replace(asking(tasks_per_node=ranks, gpus_per_node=gpus), kind=kind)
    found = list(request.ranks_and_gpus(outline_plan(spec, Path("/runs/x"))))
    assert [finding.level for finding in found] == ([level] if level else [])
    assert all(finding.remedy == f"--tasks-per-node {gpus}" for finding in found)


@pytest.mark.parametrize("cluster", [SPEC.cluster, SLURM])
def test_gpus_without_a_rank_are_noted_once_and_not_for_keras(
    tmp_path: Path, cluster: Cluster
) -> None:
    with_gpus(tmp_path, 4)
    for engine, noted in (
        ("torch", ["tasks_per_node is 2, gpus_per_node is 4: GPUs stay idle"]),
        ("keras", []),
    ):
        spec = replace(
            needing(engine=engine),
            resources=Resources(gpus_per_node=4, tasks_per_node=2),
            cluster=cluster,
        )
        plan = outline_plan(spec, Path("/runs/x"))
        findings = [*request.device(plan), *request.ranks_and_gpus(plan)]
        assert [finding.cause for finding in findings] == noted


@pytest.mark.parametrize("device", ["cpu", "auto"])
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_on_a_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str, precision: str
) -> None:
    spec = training(device=device, precision=precision)
    monkeypatch.setattr(hardware, "bf16_is_fast", lambda: False)
    error = refusal(tmp_path, spec)
    assert f"precision={precision}" in error.message and error.hint == "precision=fp32"
    check(replace(spec, kind="script"), tmp_path / "runs")  # its settings are its own business
    monkeypatch.setattr(hardware, "bf16_is_fast", lambda: True)
    if precision == "bf16":
        check(spec, tmp_path / "runs")
    else:
        refusal(tmp_path, spec)


def test_half_precision_where_a_gpu_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "bf16_is_fast", lambda: False)
    with_gpus(tmp_path, 1)
    for precision in ("bf16", "fp16"):
        spec = training(precision=precision)
        check(spec, tmp_path / "runs")
        refusal(tmp_path, replace(spec, resources=Resources(devices=[])))
        refusal(tmp_path, training(precision=precision, device="cpu"))
        check(replace(spec, cluster=SLURM, resources=Resources(gpus_per_node=1)), tmp_path / "runs")
    # another CPU will compute it
    check(replace(training(precision="bf16"), cluster=SLURM), tmp_path / "runs")
    on_queue = replace(training(precision="fp16"), cluster=SLURM)
    assert "fp16" in refusal(tmp_path, on_queue).message, (
        "no GPU was asked for, so the job gets none"
    )


def test_commands_that_are_there(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    program(tmp_path, "tool", "")
    (tmp_path / "package").mkdir()
    for words in (
        ["sh", "train.py"],
        ["sh", "-c", "x"],
        ["bin/tool"],
        ["tool"],
        ["sh", str(tmp_path / "train.py")],
    ):
        check(commanding(tmp_path, *words), tmp_path / "runs")


def test_commands_that_are_not(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    error = refusal(tmp_path, commanding(tmp_path, "sh", "trian.py"))
    assert (
        error.message == f"script 'trian.py' does not exist in {tmp_path}"
        and "did you mean train.py" in error.hint
    )
    assert (
        "there is no directory" in refusal(tmp_path, commanding(tmp_path, "sh", "no/train.py")).hint
    )
    assert (
        "there is no script in"
        in refusal(tmp_path, commanding(tmp_path, "sh", "bin/train.py")).hint
    )
    assert (
        "no program 'pyhton'"
        in refusal(tmp_path, commanding(tmp_path, "pyhton", "train.py")).message
    )
    assert "no program './absent'" in refusal(tmp_path, commanding(tmp_path, "./absent")).message
    assert "no program ''" in refusal(tmp_path, commanding(tmp_path, "")).message
    assert refusal(tmp_path, commanding(tmp_path, "train.py")).hint == "python train.py"
    assert refusal(tmp_path, commanding(tmp_path, "./train.py")).hint == "python ./train.py"


def test_a_runs_root_that_can_not_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    error = refusal(tmp_path, SPEC, tmp_path / "file" / "runs")
    assert (
        f"{tmp_path / 'file'} is not a directory" in error.message and "RAMPUP_RUNS" in error.hint
    )
    (tmp_path / "dangling").symlink_to("nowhere")
    assert "not a directory" in refusal(tmp_path, SPEC, tmp_path / "dangling").message
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    assert f"{tmp_path} is not writable" in refusal(tmp_path, SPEC, tmp_path / "runs").message


@pytest.mark.parametrize(("free", "inodes", "level"), [
    (10**12, 10**6, "ok"),
    (10**12, None, "ok"),
    (10**8, 10**6, "note"),
    (4 * 10**7, 10**6, "problem"),
    (10**12, 5, "problem"),
])  # fmt: skip
def test_room_for_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, inodes: int | None, level: str
) -> None:
    monkeypatch.setattr(storage, "measure_room", lambda path: storage.Room(free, inodes))
    (found,) = storage.runs_root_room(tmp_path)
    assert found.level == level
    if level == "problem":
        assert str(tmp_path) in refusal(tmp_path, SPEC, tmp_path).message
    else:
        assert [note.id for note in check(SPEC, tmp_path)] == (
            ["runs-room"] if level == "note" else []
        )


# the machine --------------------------------------------------------------------------------------


def cgroups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str, **files: str) -> None:
    (tmp_path / "own").write_text(own)
    monkeypatch.setattr(machine, "OWN_CGROUPS", tmp_path / "own")
    monkeypatch.setattr(machine, "CGROUP_ROOT", tmp_path / "cgroup")
    for name, text in files.items():
        path = tmp_path / "cgroup" / name.replace("__", "/").replace("DOT", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


@pytest.mark.parametrize("version", [1, 2])
def test_limits_of_an_outer_cgroup_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(4)))
    if version == 2:
        files = {"job__cpuDOTmax": "150000 100000", "job__step__cpuDOTmax": "max 100000"}
        files |= {
            "job__memoryDOTmax": "2000000000",
            "job__memoryDOTcurrent": "1500000000",
            "memoryDOTmax": "max",
        }
        cgroups(tmp_path, monkeypatch, "0::/job/step\n", **files)
    else:
        files = {
            "cpu,cpuacct__job__cpuDOTcfs_quota_us": "150000",
            "cpu,cpuacct__job__cpuDOTcfs_period_us": "100000",
        }
        files |= {
            "cpu,cpuacct__cpuDOTcfs_quota_us": "-1",
            "cpu,cpuacct__cpuDOTcfs_period_us": "100000",
        }
        files |= {"memory__job__memoryDOTlimit_in_bytes": "2000000000"}
        files |= {"memory__job__memoryDOTusage_in_bytes": "1500000000"}
        cgroups(
            tmp_path, monkeypatch, "4:memory:/job\n3:cpu,cpuacct:/job\n2:cpuset:/\n0::/\n", **files
        )
    assert machine.cpus() == (8, 4, 1.5)
    found = machine.memory()
    assert found is not None and found.total == 2_000_000_000 and found.free <= 500_000_000
    (cpus,), (memory,) = catalogue.cpus(), catalogue.memory()
    assert (cpus.level, cpus.remedy) == ("note", "--cpus-per-task 1") and "1.5" in cpus.cause
    assert memory.level == "note"


def test_without_limits_the_machine_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cgroups(tmp_path, monkeypatch, "0::/\n", cpuDOTmax="800000 100000")
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    assert machine.cpus() == (8, 2, None)
    assert list(catalogue.cpus()) == [Finding("cpus", "ok", "CPUs: 2 of 8")]


def test_gpus_are_named_and_a_dead_driver_is_a_problem(tmp_path: Path) -> None:
    assert next(catalogue.gpus()).about == "GPUs: none, training uses the CPU"
    with_gpus(tmp_path, 2)
    assert next(catalogue.gpus()).about == "GPUs: GPU 0: Big One, GPU 1: Big One"
    program(tmp_path, "nvidia-smi", "echo 'could not communicate with the driver'; exit 9").chmod(
        0o755
    )
    assert next(catalogue.gpus()).level == "ok", "no GPU, only its tool"
    (tmp_path / "dev" / "nvidia0").touch()
    (tmp_path / "dev" / "nvidiactl").touch()
    assert next(catalogue.gpus()).level == "problem"
    (tmp_path / "bin" / "nvidia-smi").unlink()
    assert machine.gpus() == [str(tmp_path / "dev" / "nvidia0")]


def test_small_shared_memory_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert next(catalogue.shared_memory(tmp_path / "absent")).level == "ok"
    monkeypatch.setattr(storage, "measure_room", lambda path: storage.Room(64_000_000, None))
    (found,) = catalogue.shared_memory(tmp_path)
    assert found.level == "note" and "--shm-size" in found.remedy


def test_an_absent_framework_is_noted_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        catalogue, "FRAMEWORKS", {"nosuch": "torch", "nosuch-either": "", "pytest": ""}
    )
    found = list(catalogue.frameworks())
    assert [(one.id, one.level) for one in found] == [
        ("framework-nosuch", "note"),
        ("framework-pytest", "ok"),
    ]
    assert found[0].remedy == "pip install 'rampup[torch]'" and pytest.__version__ in found[1].about


# doctor -------------------------------------------------------------------------------------------


def test_doctor_looks_at_everything_and_every_finding_that_is_not_ok_has_a_remedy(
    tmp_path: Path,
) -> None:
    found = doctor("local", tmp_path / "runs")
    topics = {
        "python",
        "cluster",
        "cpus",
        "memory",
        "shm",
        "gpus",
        "bf16",
        "data-mnist",
        "runs-root",
        "runs-room",
    }
    assert topics < {finding.id for finding in found}
    assert all(finding.level == "ok" or (finding.cause and finding.remedy) for finding in found)
    assert {finding.id: finding.level for finding in found}["data-mnist"] == "note"
    assert not (tmp_path / "runs").exists()


def test_the_command(cli: Any, tmp_path: Path) -> None:
    good = cli("doctor")
    assert "ok       runs live in" in good.stdout and "rampup fetch mnist" in good.stdout
    assert good.stderr.startswith("next: ") and len(good.stderr.splitlines()) == 1
    (tmp_path / "file").touch()
    bad = cli("doctor", RAMPUP_RUNS=str(tmp_path / "file"), check=1)
    assert "problem  runs live in" in bad.stdout
    assert bad.stderr == f"next: {storage.ANOTHER_ROOT}\n"
    levels = {
        row["id"]: row["level"]
        for row in cli.json("doctor", RAMPUP_RUNS=str(tmp_path / "file"), check=1)
    }
    assert levels["runs-root"] == "problem" and levels["python"] == "ok"
    assert "did you mean local" in cli("doctor", "--on", "locl", check=3).stderr


def test_a_damaged_set_is_a_problem_for_everyone(tmp_path: Path) -> None:
    (tmp_path / "cache" / "rampup" / "data" / "mnist").mkdir(parents=True)
    found = next(it for it in catalogue.data_sets() if it.id == "data-mnist")
    assert (found.level, found.remedy) == ("problem", "rampup fetch mnist")


# commands -----------------------------------------------------------------------------------------

SCRIPT = replace(
    SPEC, kind="command", recipe=None, command=("python", "train.py"), train={}, cluster=SLURM
)


def notes_on(spec: RunSpec, tmp_path: Path, text: str) -> list[tuple[str, str]]:
    (tmp_path / "train.py").write_text(text)
    plan = outline_plan(replace(spec, cwd=str(tmp_path)), tmp_path)
    found = [*request.command_on_trial(plan), *request.downloads(plan)]
    assert all(finding.level == "note" and finding.remedy for finding in found)
    return [(finding.topic, finding.cause) for finding in found]


def test_a_script_that_seems_to_download_is_noticed(tmp_path: Path) -> None:
    text = "import torchvision\n\ndata = torchvision.datasets.MNIST('x', download=True)\n"
    line = "the command seems to download (line 3 of train.py), and "
    assert notes_on(SCRIPT, tmp_path, text) == [
        ("downloads", f"{line}the nodes may have no network")
    ]
    two = replace(SCRIPT, cluster=load("local"), resources=Resources(tasks_per_node=2))
    assert notes_on(two, tmp_path, text) == [("downloads", f"{line}every rank does so")]
    here = replace(SCRIPT, cluster=load("local"))
    assert notes_on(here, tmp_path, text) == []
    assert notes_on(SCRIPT, tmp_path, text.replace("True", "False")) == []
    assert notes_on(SCRIPT, tmp_path, "not python at all") == []


def test_a_second_life_that_nobody_gives_is_a_mistake(tmp_path: Path) -> None:
    program = Program(stop_signal="TERM", again=True)
    found = {}
    for name in ("local", "spark", "site"):
        cluster = SLURM if name == "site" else load(name)
        plan = outline_plan(replace(SCRIPT, program=program, cluster=cluster), tmp_path)
        found[name] = [(one.topic, one.level) for one in request.second_life(plan)]
    assert found == {
        "local": [("again", "note")],
        "spark": [("stop signal", "problem"), ("again", "note")],
        "site": [],
    }


def test_a_trial_of_a_command_says_that_all_of_it_runs(tmp_path: Path) -> None:
    trial = replace(SCRIPT, smoke=True, resources=Resources(time="0:02:00"))
    assert notes_on(trial, tmp_path, "") == [
        ("smoke", "--smoke runs the whole command, for 0:02:00 at most")
    ]
    assert notes_on(replace(SPEC, cluster=SLURM, smoke=True), tmp_path, "") == []
