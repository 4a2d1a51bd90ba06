"""Our profiles: small, true to their form, and every script that they make is known, readable and
free of mistakes."""

import shutil
import subprocess
from pathlib import Path

import pytest

from rampup.config import clusters as load
from rampup.core.spec import Cluster
from rampup.errors import Refused
from rampup.schedulers import find_scheduler
from rampup.schedulers.slurm.sbatch_options import options_of
from unit.job_scripts import FULL, GOLDEN, PROFILE_CASES, kept, make_spec, profiles, render

FOLDER = GOLDEN / "slurm" / "profiles"
FILES = sorted(load.HERE.glob("*.toml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_profile_is_small_and_names_nobodys_account(file: Path) -> None:
    profile = load.read(file)
    assert len(file.read_text().splitlines()) <= 30
    assert max(map(len, file.read_text().splitlines())) <= 120
    assert profile.cluster.about
    assert profile.cluster.launcher in find_scheduler(profile.cluster.scheduler).launchers
    assert "account" not in profile.said and "environment" not in profile.said


def test_the_machines_of_the_documents_are_there() -> None:
    known = {"slurm", "kebnekaise", "snowy", "archer2", "archer2-gpu", "rivanna", "csiro"}
    assert known == profiles().keys()


@pytest.mark.parametrize("name", PROFILE_CASES)
def test_its_scripts_are_as_they_were(name: str) -> None:
    again = "if that is meant: python -m tests.unit.job_scripts"
    assert render(PROFILE_CASES[name]) == kept(f"slurm/profiles/{name}"), again


def test_no_script_is_left_over() -> None:
    full = Path(FULL["slurm"]).name  # the one that is kept as a whole, in full.sh
    assert {path.stem for path in FOLDER.iterdir()} == PROFILE_CASES.keys() - {full}
    assert {path.suffix for path in FOLDER.iterdir()} == {".diff"}


def test_shellcheck_has_nothing_to_say_of_them(tmp_path: Path) -> None:
    """Directives are comments to it: scripts that differ in these alone are looked at once."""
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed: apt-get install shellcheck")
    bodies: dict[str, str] = {}
    for name, spec in sorted(PROFILE_CASES.items()):
        lines = render(spec).splitlines(keepends=True)
        body = "".join(line for line in lines if not line.startswith("#SBATCH"))
        bodies.setdefault(body, f"{name}.sh")
    assert len(bodies) >= 16, "four launchers at four kinds of site"
    for body, name in bodies.items():
        (tmp_path / name).write_text(body)
        assert max(map(len, body.splitlines())) <= 120, name
    done = subprocess.run(
        ["shellcheck", *sorted(tmp_path.iterdir())], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_the_guide_has_every_key() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "reference" / "profile-keys.md").read_text()
    rows = [line.split("|")[1] for line in guide.splitlines() if line.startswith("| ")]
    documented = {row.strip(" `") for row in rows}
    assert set(Cluster.__struct_fields__) - {"name"} <= documented


# keys that change the script ----------------------------------------------------------------------


def test_the_words_of_a_site_reach_srun_and_not_mpirun() -> None:
    site = {"srun": ["--distribution=block:block", "--comment=a b"]}
    assert "\n    --distribution=block:block '--comment=a b' --nodelist=" in render(
        make_spec(**site)
    )
    assert "--distribution" in render(make_spec(launcher="torchrun", **site))
    assert "--distribution" not in render(make_spec(launcher="mpirun", **site))


@pytest.mark.parametrize("word", ["-m", "", "--", "--=3", "distribution=block", "--comment=a\nb"])
def test_what_is_no_option_of_srun_is_refused(word: str) -> None:
    with pytest.raises(Refused, match="not an option of srun") as refused:
        render(make_spec(srun=[word]))
    assert "--distribution" in refused.value.hint


@pytest.mark.parametrize(
    "word", ["--ntasks=3", "--ntas=3", "--cpu-bind=none", "--mpi=pmi2", "--nodelist=a", "--wait"]
)
def test_what_the_launcher_says_a_site_does_not(word: str) -> None:
    with pytest.raises(Refused, match="can't stand in srun of cluster site") as refused:
        render(make_spec(srun=[word]))
    assert refused.value.hint


def test_a_binding_is_for_ranks_and_not_for_an_agent_of_many() -> None:
    site = {"cpu_bind": "map_cpu:0,8", "hint": "nomultithread"}
    assert "--cpu-bind=map_cpu:0,8" in render(make_spec(**site))
    under_torchrun = render(make_spec(launcher="torchrun", **site))
    assert "--cpu-bind" not in under_torchrun and "--wait=0 --hint=nomultithread" in under_torchrun


def test_one_of_several_clusters_is_named_in_the_script() -> None:
    assert "\n#SBATCH --clusters=snowy\n" in render(make_spec(slurm_cluster="snowy"))
    assert "clusters" not in options_of(make_spec(), Path("/r"), "abc234")
    with pytest.raises(Refused, match="clusters can't be set by --slurm"):
        render(make_spec({"slurm": ["clusters=other"]}, slurm_cluster="snowy"))
