"""env.json records the variables of a list, and none of them with a secret."""

import json

import pytest

from rampup.rundir.files import RunDir
from rampup.runs import versions

GIVEN = {
    "SLURM_JWT": "eyJhbGciOiJIUzI1NiJ9.SECRET9",
    "SLURM_JOB_ID": "7",
    "SLURM_FUTURE_LOGIN": "SECRET",
    "TF_URL": "SECRET",
    "TORCH_HOME": "https://user:SECRET6@host/x",
    "CONDA_TOKEN": "SECRET",
    "NCCL_DEBUG": "INFO",
    "LMOD_X": "SECRET",
}


def test_only_variables_of_a_list_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in GIVEN.items():
        monkeypatch.setenv(name, value)
    found = versions.variables()
    assert "SECRET" not in str(found)
    shown = {name: found[name] for name in GIVEN if name in found}
    assert shown == {
        "SLURM_JOB_ID": "7",
        "NCCL_DEBUG": "INFO",
        "TORCH_HOME": "https://(not shown)@host/x",
    }
    assert list(found) == sorted(found)


def test_what_an_older_version_has_recorded_is_not_shown(tmp_path: object) -> None:
    run = RunDir(str(tmp_path))
    run.env_file.write_text(json.dumps({"variables": GIVEN, "code": {"commit": "0123abcd" * 5}}))
    hidden = {
        name: run.env["variables"][name] for name in ("SLURM_JWT", "TORCH_HOME", "CONDA_TOKEN")
    }
    assert "SECRET" not in str(hidden)
    assert run.env["variables"]["SLURM_JWT"] == "(not shown)"
    assert run.env["code"] == {"commit": "0123abcd" * 5}
