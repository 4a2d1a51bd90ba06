"""tests/golden: the differences that it is made of, and the command that writes it anew."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from unit import job_scripts
from unit.job_scripts import GOLDEN, GOLDENS, applied, difference, file_of


def test_no_golden_file_is_left_over() -> None:
    found = {path for path in GOLDEN.rglob("*") if not path.is_dir()}
    assert found == {GOLDEN / "README.md"} | {file_of(name) for name in GOLDENS}


TEXTS = ("", "\n", "a", "a\n", "a\n\nb\n", "a\nb\na\nb\na\nb\n", "\n\na\n\n\na\n\n")
TEXTS += ("b\na\nb\nc\na\nb\n", "a \n a\n\ta\n", "a\r\nb\x0cc\n \n")
TEXTS += ("@@ a @@\n-b\n+c\n d\n", "@@ @@\n@@\n@@  @@\n")


@pytest.mark.parametrize("old", TEXTS)
@pytest.mark.parametrize("new", TEXTS)
def test_a_difference_leads_from_one_text_to_the_other(old: str, new: str) -> None:
    assert applied(old, difference(old, new)) == new
    assert (difference(old, new) == "") == (old == new)


def test_a_difference_tells_its_place() -> None:
    """The same line at another place is another difference; one that does not fit is refused."""
    old = "if a\n  b\nfi\nif c\n  d\nfi\nend\n"
    first, second = old.replace("fi\n", "fi\nx\n", 1), old.replace("fi\nend", "fi\nx\nend")
    assert difference(old, first) == "@@   b @@\n fi\n+x\n"
    assert difference(old, second) == "@@   d @@\n fi\n+x\n"
    for wrong in ("@@   e @@\n fi\n+x\n", "@@   b @@\n-if\n", "@@ @@\n b\n+x\n", "+x\n", "\n"):
        with pytest.raises(ValueError, match=r"no such place|begins with @@"):
            applied(old, wrong)
    with pytest.raises(ValueError, match="no line of a difference"):
        applied(old, difference(old, first) + "<<<<<<< HEAD\n")


def contents(folder: Path) -> dict[Path, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder): path.read_bytes() for path in files}


def test_a_refresh_tells_what_changed(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    copy = shutil.copytree(GOLDEN, tmp_path / "golden")
    monkeypatch.setattr(job_scripts, "GOLDEN", copy)
    job_scripts.refresh()
    assert capsys.readouterr().out == f"{len(GOLDENS)} scripts, and none has changed\n"
    assert contents(copy) == contents(GOLDEN)
    whole = (copy / "slurm" / "full.sh").read_text()
    (copy / "slurm" / "full.sh").write_text(whole.replace("mkdir -p ", "mkdir "))
    (copy / "slurm" / "old.diff").write_text("")
    (copy / "slurm" / "gres.diff").unlink()
    (copy / "slurm" / "gpus.diff").write_text("<<<<<<< HEAD\n")
    job_scripts.refresh()
    told = capsys.readouterr().out
    assert told.count('-mkdir "$run_dir/attempts"\n+mkdir -p "$run_dir/attempts"\n') == 1
    assert f"{len(GOLDENS) - 2} of {len(GOLDENS)} scripts: slurm/plain, " in told
    assert "slurm/gres\nwas not there, or could not be read: FileNotFoundError\n" in told
    assert "slurm/gpus\nwas not there, or could not be read: ValueError\n" in told
    assert "slurm/old.diff\nis gone\n" in told
    assert contents(copy) == contents(GOLDEN)
