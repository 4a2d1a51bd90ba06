"""Thousands of hostile values: none of a user's words is ever read by a shell, and none is changed
on its way.

Random, with a fixed seed. What sbatch makes of directives is tried on a real one in
tests/slurm/test_hostile.py.
"""

import json
import random
import re
import string
import subprocess
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rampup.config.resolve import Request, clean_name, resolve
from rampup.core.spec import Resources
from rampup.errors import RampupError, Refused
from rampup.rundir.records import read_json, write_json
from rampup.runs.plan import find_program, make_config
from rampup.schedulers.slurm.sbatch_options import LONGEST, directive
from unit.job_scripts import RUN_DIR, make_spec, render

BYTES = "\udcff"
"""A byte that is no text, as Python has it: possible in argv, not in a profile."""
VISIBLE = r"""
' " \ ` $ $(id) ${IFS} `id` # %j %% -- - -rf / .. * ? ~ ! !! & && | ; < > ( ) { } [ ] \n \' '"'"' $'\x41' {0} {run_dir}
%s %n EOF é ß 日本 😀 hetjob #SBATCH
"""
NASTY = (
    *VISIBLE.split(),
    *(
        "\n",
        "\r\n",
        "\t",
        "\x1b[31m",
        "\x7f",
        " ",
        "  ",
        "\u2028",
        "\u00a0",
        "\u202e",
        "\ufeff",
        "e\u0301",
        BYTES,
    ),
    *("\n#SBATCH --nodes=9", "#SBATCH --nodes=9", "\n\nreboot\n"),
)
MARK = "Mq7"
"""In every value, so that none is empty."""


def values(count: int, seed: int) -> list[str]:
    dice = random.Random(seed)
    made = [f"{MARK}{dice.choice(NASTY)}" for _ in range(count // 4)]
    while len(made) < count:
        parts = [
            dice.choice(NASTY) if dice.random() < 0.7 else dice.choice(string.printable)
            for _ in range(dice.randint(1, 12))
        ]
        parts.insert(dice.randint(0, len(parts)), MARK)
        made.append("".join(parts))
    return [*made, MARK + "x" * 100_000, MARK + "'" * 100_000, "-" * 50 + MARK]


def refusal_or_text(**request: Any) -> Refused | str:
    """The script, or a refusal that a person can read."""
    try:
        return render(make_spec(request))
    except Refused as error:
        refused = error
    assert len(refused.message) < 300 and refused.message.isprintable() and refused.hint
    return refused


def test_no_word_of_a_command_is_in_the_script() -> None:
    plain = render(make_spec())
    for value in values(3000, seed=1):
        assert render(replace(make_spec(), command=("python", value))) == plain


def test_no_setting_is_in_the_script() -> None:
    plain = render(make_spec())
    for value in values(3000, seed=2):
        hostile = replace(
            make_spec(),
            train={"key": value, value: [value]},
            origins={"train.key": value},
            cwd=value,
        )
        assert render(hostile) == plain


def test_words_and_settings_arrive_by_way_of_a_file(tmp_path: Path) -> None:
    """config.json is what rank.py reads; it execs the argv that stands there."""
    words = values(2000, seed=3)
    hostile = replace(make_spec(), command=("python", *words), train={"values": list(words)})
    write_json(
        tmp_path / "config.json",
        make_config(hostile, RUN_DIR, find_program(hostile, RUN_DIR), False),
    )
    found = json.loads((tmp_path / "config.json").read_text())  # as rank.py reads it
    assert found["argv"] == ["python", *words]
    assert found["train"]["values"] == words
    assert read_json(tmp_path / "config.json")["argv"] == ["python", *words]  # as readers do


def bash(script: str) -> list[str]:
    """What bash prints, cut at its zero bytes."""
    done = subprocess.run(["bash", "-u"], input=script.encode(), capture_output=True, timeout=60)
    assert done.stderr == b"", script
    return done.stdout.decode().split("\0")[:-1]


def between(text: str, begin: str, end: str) -> str:
    return text[text.index(begin) : text.index(end)]


def test_variables_of_a_profile_survive_bash() -> None:
    """All in one script, read by one bash, and compared to the byte."""
    kept = [value for value in values(2000, seed=4) if BYTES not in value]
    text = render(make_spec(variables={f"V{number}": value for number, value in enumerate(kept)}))
    show = f'for i in {{0..{len(kept) - 1}}}; do v="V$i"; printf "%s\\0" "${{!v}}"; done'
    assert bash(between(text, "export V0=", "\n# One task per rank") + "\n" + show) == kept


def test_names_of_software_arrive_or_are_refused() -> None:
    arrived = 0
    for value in values(300, seed=12):
        try:
            text = render(make_spec({"env": f"/v/{value}"}, modules=[value]))
        except Refused:
            assert not value.isprintable()
            continue
        load, activate = (
            between(text, "call_module load ", "\nprintf"),
            between(text, "environment=", "\nif [ ! -r"),
        )
        show = 'call_module() { printf "%s\\0" "$2"; }'
        assert bash(f'{show}\n{load}\n{activate}\nprintf "%s\\0" "$environment"') == [
            value,
            f"/v/{value}",
        ]
        arrived += 1
    assert arrived > 50


def read_as_sbatch(line: str) -> list[str]:
    """sbatch's way to cut a directive into words, read in its source: quotes of both kinds,
    backslashes, comments."""
    words, word, quote, escaped = [], "", "", False
    begun = False
    for letter in line.removeprefix("#SBATCH") + " ":
        if escaped:
            word, escaped, begun = word + letter, False, True
        elif letter == "\\":
            escaped = True
        elif quote:
            quote, word = ("", word) if letter == quote else (quote, word + letter)
        elif letter in "\"'":
            quote, begun = letter, True
        elif letter == "#":
            break
        elif letter in " \t\n\v\f\r":
            words += [word] if begun or word else []
            word, begun = "", False
        else:
            word += letter
    return words


def test_directives_are_read_as_given_or_refused() -> None:
    accepted = 0
    for value in values(6000, seed=5):
        found = refusal_or_text(slurm=[f"comment={value}"])
        if isinstance(found, Refused):
            assert not value.isprintable() or len(value.encode()) > LONGEST
        else:
            line = directive("comment", value)
            assert f"\n{line}\n" in found and line.isprintable()
            assert read_as_sbatch(line) == [f"--comment={value}"]
            accepted += 1
    assert 1000 < accepted < 5000


ONE_WORD = [
    field
    for field, kind in Resources.__annotations__.items()
    if kind == str | None and field != "time"
]


def new_lines(text: str) -> list[str]:
    """The directives that a plain run does not have; the rest of the script is as ever."""
    plain, (head, _, body) = render(make_spec()), text.partition("\n\n")
    assert body == plain.partition("\n\n")[2]
    return [
        line
        for line in head.splitlines()[2:]
        if f"\n{line}\n" not in plain and "--mail-type=" not in line
    ]


@pytest.mark.parametrize("field", ONE_WORD)
def test_every_word_of_the_request_is_a_directive_or_refused(field: str) -> None:
    for value in values(200, seed=6):
        found = refusal_or_text(**{field: value})
        if isinstance(found, str):
            (line,) = new_lines(found)
            (word,) = read_as_sbatch(line)
            assert word.endswith(f"={value}")


def test_slurm_words_are_a_directive_or_refused() -> None:
    dice = random.Random(7)
    accepted = 0
    for value in values(2000, seed=7):
        word = dice.choice(
            (f"comment={value}", f"{value}=x", value, f"--comment={value}", f"{value}={value}")
        )
        found = refusal_or_text(slurm=[word])
        if isinstance(found, str):
            assert [read_as_sbatch(line) for line in new_lines(found)] == [
                [f"--{word.removeprefix('--')}"]
            ]
            accepted += 1
    assert accepted > 100


def test_profile_words_reach_srun_as_one_word() -> None:
    kept = [value for value in values(100, seed=8) if BYTES not in value]
    for value in kept:
        text = render(make_spec(cpu_bind=value, master_suffix=value))
        master = between(text, "master=${first}", "if ! getent")
        call = between(text, "  srun ", " --nodelist=").replace("\\\n", " ", 1)
        words = bash(f'first=n1\n{master}srun() {{ printf "%s\\0" "$@" "$master"; }}\n{call}')
        assert words[-2:] == [f"--cpu-bind={value}", f"n1{value}"]


def test_the_interpreter_may_lie_anywhere() -> None:
    for value in [value for value in values(60, seed=10) if BYTES not in value]:
        text = render(make_spec(), python=f"/{value}/python")
        assert bash(between(text, "\npython=", "\njob=") + '\nprintf "%s\\0" "$python"') == [
            f"/{value}/python"
        ]


def test_names_of_runs_are_tame() -> None:
    for value in values(3000, seed=11):
        name = clean_name(value)
        assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,39}", name)


def test_what_is_typed_is_kept_or_refused(tmp_path: Path) -> None:
    """Through all of config.py, as after `rampup run`."""
    for value in values(300, seed=9):
        typed = Request(command=("python", value), settings=(f"note=' {value}",), name=value)
        spec = resolve(typed, tmp_path)
        assert spec.command == ("python", value)
        assert spec.train["note"] == f"' {value}"
        with pytest.raises(RampupError) as refused:
            resolve(Request(command=("true",), settings=(f"resources.{value}=1",)), tmp_path)
        assert refused.value.hint
