"""Scripts of shell are files: how they are filled, and what shellcheck says where they lie."""

import shutil
import subprocess
from pathlib import Path

import pytest

import rampup
from rampup.core.shell import fill

SCRIPTS = sorted(Path(rampup.__file__).parent.rglob("*.sh"))
OF_SLOTS = "SC2034,SC2043,SC2154,SC2170,SC2242,SC2317"
"""What is said of a part that uses what another part sets, and of a slot in place of a number."""


def test_values_lines_and_conditions(tmp_path: Path) -> None:
    script = tmp_path / "a.sh"
    script.write_text("#@put head\na=@a@@b@ @@\n#@if on\non @b@\n#@else\noff\n#@end\nend\n")
    values = {"a": "@b@", "b": 2, "on": False}
    assert fill(script, {**values, "head": "# 1\n# 2"}) == "# 1\n# 2\na=@b@2 @@\noff\nend\n"
    assert fill(script, {**values, "head": "", "on": True}) == "a=@b@2 @@\non 2\nend\n"


def test_a_part_that_is_left_out_leaves_out_all_of_it(tmp_path: Path) -> None:
    script = tmp_path / "a.sh"
    script.write_text("#@if a\n#@if b\nboth\n#@else\na\n#@put more\n#@end\n#@end\n")
    assert fill(script, {"a": False, "b": False, "more": "more"}) == ""
    assert fill(script, {"a": True, "b": False, "more": "more"}) == "a\nmore\n"
    assert fill(script, {"a": True, "b": True, "more": "more"}) == "both\n"


def test_what_does_not_fit_is_an_error_and_not_a_script(tmp_path: Path) -> None:
    script = tmp_path / "a.sh"
    script.write_text("a=@a@\n")
    with pytest.raises(KeyError):
        fill(script, {})
    with pytest.raises(ValueError, match="has no slot for b"):
        fill(script, {"a": 1, "b": 2})
    script.write_text("#@if a\nx\n")
    with pytest.raises(ValueError, match="without its #@end"):
        fill(script, {"a": True})


def test_shellcheck_has_nothing_to_say_of_them_where_they_lie() -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed: apt-get install shellcheck")
    assert len(SCRIPTS) >= 9
    words = ["shellcheck", "--shell=bash", f"--exclude={OF_SLOTS}", *map(str, SCRIPTS)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_no_script_reads_json() -> None:
    """A script writes the record of its attempt; it reads plain words and names of files."""
    lines = [line.strip() for path in SCRIPTS for line in path.read_text().splitlines()]
    found = [line for line in lines if "json" in line and not line.startswith("#")]
    assert found == [
        '> "$attempt_dir/.attempt.json" &&',
        'mv "$attempt_dir/.attempt.json" "$attempt_dir/attempt.json"',
        "run_hash=$(sha256sum < \"$run_dir/run.json\" | cut -d ' ' -f 1)",
        "if [[ $name =~ ^([0-9]+)\\.json$ ]] && "
        '[ "${BASH_REMATCH[1]}" -gt "${starts[$1]}" ]; then return 1; fi',
    ]


def test_no_other_file_of_the_package_holds_a_script() -> None:
    root = Path(rampup.__file__).parent
    found = [
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if any(word in path.read_text() for word in ("#!/bin/", "; then\n", "\nesac", "\ndone\n"))
    ]
    assert found == []
