"""What a user and a site may say to sbatch, and what stays with rampup."""

import pytest

from rampup.errors import Refused
from rampup.schedulers.slurm.sbatch_options import FLAGS, OWN, clock, directive, options_of
from unit.job_scripts import RUN_DIR, make_spec


def options(*words: str, **profile: object) -> dict[str, str]:
    return options_of(make_spec({"slurm": list(words)}, **profile), RUN_DIR, "abc234")


def test_any_other_option_is_passed_on() -> None:
    assert options("comment=hello")["comment"] == "hello"
    assert options("--time-min=0:30:00")["time-min"] == "0:30:00"
    assert options("comment=a=b")["comment"] == "a=b"


def test_a_comment_is_the_users_own() -> None:
    assert "comment" not in options()


@pytest.mark.parametrize("flag", FLAGS)
def test_a_flag_stands_alone(flag: str) -> None:
    assert directive(flag, options(flag)[flag]) == f"#SBATCH --{flag}"


@pytest.mark.parametrize("word", ["comment", "dependency", "nodelist", "no-such-option"])
def test_an_option_without_its_value_would_swallow_the_next_line(word: str) -> None:
    with pytest.raises(Refused, match="needs a value"):
        options(word)
    with pytest.raises(Refused, match="has no value"):
        options(f"{word}=")


@pytest.mark.parametrize("key", OWN)
def test_what_rampup_must_know_stays_with_rampup(key: str) -> None:
    with pytest.raises(Refused, match=f"option {key} can't be set by --slurm") as refused:
        options(f"{key}=2")
    assert refused.value.hint


@pytest.mark.parametrize(
    "short", ["ntasks-per-n", "job-n", "outp", "no", "cpus-per-t", "gpus-per-n", "clust"]
)
def test_sbatch_takes_beginnings_of_names_and_we_do_not(short: str) -> None:
    with pytest.raises(Refused, match="can't be set"):
        options(f"{short}=2")


@pytest.mark.parametrize(
    "key", ["", "N", "n", "-N", "Comment", "a b", "comment\n", "é", "x;y", "-", "a--b", "a-"]
)
def test_names_are_long_names(key: str) -> None:
    with pytest.raises(Refused, match="long name"):
        options(f"{key}=2")


def test_a_profile_may_set_defaults_but_no_ranks() -> None:
    assert options(sbatch={"constraint": "fast", "exclusive": ""})["constraint"] == "fast"
    with pytest.raises(Refused, match="nodes can't be set in the profile site"):
        options(sbatch={"nodes": "3"})
    with pytest.raises(Refused, match="needs a value"):
        options(sbatch={"comment": ""})


def test_memory_is_said_in_one_way() -> None:
    site = {"mem-per-cpu": "4G"}
    assert "mem-per-cpu" not in options_of(make_spec({"mem": "8G"}, sbatch=site), RUN_DIR, "abc234")
    both = options_of(
        make_spec({"mem": "8G", "slurm": ["mem-per-gpu=9G"]}, sbatch=site), RUN_DIR, "abc234"
    )
    assert {key: value for key, value in both.items() if key.startswith("mem")} == {
        "mem-per-gpu": "9G"
    }


def test_generic_resources_add_up() -> None:
    asked = {"gpus_per_node": 2, "slurm": ["gres=nvme:1"]}
    assert (
        options_of(make_spec(asked, gpu_directive="gres"), RUN_DIR, "abc234")["gres"]
        == "gpu:2,nvme:1"
    )
    assert options_of(make_spec(asked), RUN_DIR, "abc234")["gres"] == "nvme:1"


def test_times_are_whole() -> None:
    assert [clock(seconds) for seconds in (30, 5_400, 90_061)] == [
        "0-00:00:30",
        "0-01:30:00",
        "1-01:01:01",
    ]
    assert options_of(make_spec({"time": "90"}), RUN_DIR, "abc234")["time"] == "0-01:30:00"
