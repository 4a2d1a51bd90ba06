"""The job script as text: golden files, and what bash and shellcheck say of them."""

import shutil
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from rampup.errors import Refused
from rampup.launchers import find_launcher
from rampup.schedulers.slurm import job_script as slurm_script
from unit.job_scripts import CASES, RUN_DIR, kept, make_spec, render


@pytest.mark.parametrize("name", CASES)
def test_it_is_as_it_was(name: str) -> None:
    again = "if that is meant: python -m tests.unit.job_scripts"
    assert render(CASES[name]) == kept(f"slurm/{name}"), again


def test_bash_can_read_every_script() -> None:
    for name, spec in CASES.items():
        done = subprocess.run(["bash", "-n"], input=render(spec), capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), name


def test_shellcheck_has_nothing_to_say(tmp_path: Path) -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed: apt-get install shellcheck")
    for name, spec in CASES.items():
        (tmp_path / f"{name}.sh").write_text(render(spec))
    words = ["shellcheck", *sorted(tmp_path.glob("*.sh"))]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_lines_stay_readable() -> None:
    for name, spec in CASES.items():
        assert max(map(len, render(spec).splitlines())) <= 120, name


def test_the_plan_writes_the_same_script_twice() -> None:
    spec = make_spec({"nodes": 2})
    assert slurm_script.render(spec, RUN_DIR) == slurm_script.render(spec, RUN_DIR)
    assert "srun --nodes=2" in slurm_script.render(spec, RUN_DIR)


def test_gpus_are_asked_for_in_the_words_of_the_site() -> None:
    found = {
        name: [line for line in render(CASES[name]).splitlines() if "100" in line or "gpus" in line]
        for name in CASES
    }
    assert found["gpus-per-node"] == ["#SBATCH --gpus-per-node=2"]
    assert found["gres"] == ["#SBATCH --gres=gpu:a100:2"]
    assert found["gpus"] == ["#SBATCH --gpus=h100:4"]  # of the whole job
    assert found["plain"] == []


def test_ranks_are_asked_for_by_node() -> None:
    head, _, body = render(CASES["gpus-per-node"]).partition("\n\n")
    assert "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=2\n#SBATCH --cpus-per-task=8\n" in head
    assert "--ntasks=" not in head  # alone it lets Slurm spread the ranks as it likes
    assert "srun --nodes=2 --ntasks=4 --ntasks-per-node=2 --cpus-per-task=8 \\\n" in body


def test_cpus_are_said_to_srun_again_and_not_by_a_variable() -> None:
    for name, spec in CASES.items():
        if spec.cluster.launcher != "mpirun":
            assert (
                f" --cpus-per-task={find_launcher(spec.cluster.launcher).tasks(spec.resources)[1]} \\\n"
                in render(spec)
            ), name
        assert "SRUN_CPUS" not in render(spec)


def test_nothing_is_said_that_belongs_to_mpi_or_nccl() -> None:
    for name in CASES.keys() - {"pmix"}:
        assert not [
            word
            for word in ("--mpi", "NCCL_", "--gpus-per-task", "--gpu-bind")
            if word in render(CASES[name])
        ]


def test_the_time_limit_is_announced() -> None:
    assert "\n#SBATCH --signal=USR2@180\n" in render(CASES["gpus-per-node"])
    # without a limit nobody knows when
    assert "--signal" not in render(CASES["plain"]).replace("(--signal)", "")
    short = replace(CASES["plain"], resources=replace(CASES["plain"].resources, time="2"))
    assert "\n#SBATCH --signal=USR2@30\n" in render(short)


def test_requeue_is_always_said() -> None:
    assert "\n#SBATCH --requeue\n" in render(CASES["plain"])
    for name in ("no-requeue", "everything"):
        assert "\n#SBATCH --no-requeue\n" in render(CASES[name])
        assert "--requeue" not in render(CASES[name])


def test_the_site_gives_way_to_the_user() -> None:
    text = render(CASES["site-and-user"])
    assert "--mem=8G" in text and "mem-per-cpu" not in text
    assert "--constraint=big" in text and "fast" not in text
    assert "--licenses=scratch:1" in text


def test_binding_and_hint_do_not_meet_on_one_line() -> None:
    assert "--cpu-bind=mask_cpu:0x1,0x10" in render(CASES["site"])
    assert "#SBATCH --hint=nomultithread" in render(CASES["site"])
    assert "0 --hint" not in render(CASES["site"])
    assert "--wait=0 --hint=nomultithread" in render(CASES["hint"])
    assert "--cpu-bind" not in render(CASES["plain"])


def test_devices_are_slurms_to_choose() -> None:
    with pytest.raises(Refused, match="Slurm chooses the GPUs"):
        render(make_spec({"devices": [0, 2]}))


@pytest.mark.parametrize(
    "path", ["/shared/100%j %%/runs-a", '/shared/it\'s "here"/runs-a', "/shared/grüße/runs-a"]
)
def test_odd_run_directories_are_written_as_they_are(path: str) -> None:
    text = render(make_spec(), Path(path))
    log = next(line for line in text.splitlines() if line.startswith("#SBATCH --output="))
    meant = log.removeprefix("#SBATCH --output=").strip('"').replace('\\"', '"').replace("%%", "%")
    assert meant == f"{path}/slurm-%j.log"
    line = next(line for line in text.splitlines() if line.startswith("run_dir="))
    done = subprocess.run(
        ["bash", "-c", f'{line}\nprintf %s "$run_dir"'], capture_output=True, text=True
    )
    assert done.stdout == path


@pytest.mark.parametrize(
    "path", ["/shared/back\\slash/runs-a", "/shared/two\nlines/runs-a", "/shared/\udcff/runs-a"]
)
def test_run_directories_that_slurm_cannot_write_are_refused(path: str) -> None:
    with pytest.raises(Refused):
        render(make_spec(), Path(path))


@pytest.mark.parametrize(
    "env", [{"A B": "x"}, {"A;id": "x"}, {"": "x"}, {"é": "x"}, {"A": "\0"}, {"A": "x" * 131_072}]
)
def test_variables_that_no_program_can_have_are_refused(env: dict[str, str]) -> None:
    with pytest.raises(Refused, match="in the profile site"):
        render(make_spec(variables=env))
