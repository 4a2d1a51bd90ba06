"""How a failure is told: the words that name the cause, also where a framework puts them last."""

import json
from pathlib import Path

import pytest

from rampup.rundir.files import RunDir
from rampup.runtime import failure

IN_USER_CODE = """in user code:

    File "/work/rampup/engines/keras/step.py", line 41, in _in_replica
        losses = self._compiled.per_sample(y, model(x, training=True))

    ValueError: Input 0 of layer "sequential" is incompatible with the layer: expected shape=(None, 4), found (100, 3)

"""
IN_A_GRAPH = """Graph execution error:

Detected at node Cast defined at (most recent call last):
  File "/work/rampup/engines/keras/step.py", line 41, in _in_replica

Cast string to float is not supported
\t [[{{node Cast}}]] [Op:__inference__take_471]"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            IN_USER_CODE,
            'Input 0 of layer "sequential" is incompatible with the layer: expected shape=(None, 4), found',
        ),
        (IN_A_GRAPH, "Cast string to float is not supported"),
        ("several\nlines", "several\nlines"),
        ("", ""),
    ],
)
def test_the_cause_is_told_and_the_traceback_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, told: str
) -> None:
    attempt = RunDir(tmp_path).attempt(1)
    attempt.path.mkdir(parents=True)
    assert failure.report_failure(ValueError(text), attempt, 3) == 1
    found = json.loads(attempt.error_file(3).read_text())
    assert found["message"].startswith(told) and (found["type"], found["rank"]) == ("ValueError", 3)
    assert found["message"] == told or text == IN_USER_CODE
    assert text in found["traceback"] and text in capsys.readouterr().err


@pytest.mark.parametrize("name", ["<stdin>", "<python-input-3>", "/home/me/train.py"])
def test_code_that_was_typed_at_the_prompt_has_a_line(tmp_path: Path, name: str) -> None:
    attempt = RunDir(tmp_path).attempt(1)
    attempt.path.mkdir(parents=True)
    try:
        exec(compile("def train():\n    raise ValueError\ntrain()", name, "exec"), {})
    except ValueError as error:
        failure.record_failure(error, attempt, 0)
    found = json.loads(attempt.error_file(0).read_text())
    assert (found["file"], found["line"]) == (name, 2)
