"""Options and settings as people know them from sbatch, argparse, Lightning and docker: each is
accepted, or the hint is the line to type."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from rampup.cli import list as listing
from rampup.cli import logs, run
from rampup.cli.app import cli, main, split_command
from rampup.config.resolve import Request, resolve
from rampup.errors import RampupError
from rampup.rundir.files import RunDir


def ask(line: str) -> Request:
    """Return what `rampup run` makes of a command line."""
    words, command = split_command(shlex.split(line)[1:])
    context = run.command.make_context("run", words[1:], obj=command)
    given = dict(context.params)
    resources = {key: given.get(key) for key in run.RESOURCE_OPTIONS}
    return run.make_request(
        given["words"], command, given["on"], given["name"], resources, given["slurm"], False
    )


@pytest.mark.parametrize(
    ("flag", "key", "value"),
    [
        ("-N 2", "nodes", "2"),
        ("--ntasks-per-node 2", "tasks_per_node", "2"),
        ("-c 4", "cpus_per_task", "4"),
        ("-t 10:00", "time", "10:00"),
        ("-p debug", "partition", "debug"),
        ("-A p123", "account", "p123"),
        ("-q high", "qos", "high"),
        ("-C gpu", "constraint", "gpu"),
        ("-x node01", "exclude", "node01"),
    ],
)
def test_options_of_sbatch_mean_the_same(flag: str, key: str, value: str) -> None:
    assert ask(f"rampup run mnist {flag}").options == {key: value}


@pytest.mark.parametrize("flag", ["-J", "--job-name", "--name"])
def test_the_name_of_a_job_is_the_name_of_a_run(flag: str) -> None:
    assert ask(f"rampup run mnist {flag} mine").name == "mine"


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("rampup run mnist -n 4", "rampup run mnist --tasks-per-node 4"),
        ("rampup run mnist --ntasks 4", "rampup run mnist --tasks-per-node 4"),
        ("rampup run mnist -N 2 -n 4", "rampup run mnist -N 2 --tasks-per-node 2"),
        ("rampup run mnist -w node01", "rampup run mnist --slurm nodelist=node01"),
        ("rampup run mnist --gpus 2", "rampup run mnist --gpus-per-node 2"),
        ("rampup run mnist --gpus=4 --nodes 2", "rampup run mnist --gpus-per-node 2 --nodes 2"),
        ("rampup run mnist -G 2", "rampup run mnist --gpus-per-node 2"),
        ("rampup run mnist --gres gpu:a100:2", "rampup run mnist --gpus-per-node 2"),
        ("rampup run mnist --gpu 1", "rampup run mnist --gpus-per-node 1"),
        ("rampup run mnist --cpus 2", "rampup run mnist --cpus-per-task 2"),
        ("rampup run mnist --output x.log", "rampup logs"),
        ("rampup run mnist --array 1-9", "rampup sweep RECIPE KEY=A,B"),
        ("rampup run mnist --wait", "rampup run mnist --follow"),
        ("rampup run mnist --epochs 3", "rampup run mnist epochs=3"),
        ("rampup run mnist --lr=0.1", "rampup run mnist lr=0.1"),
        ("rampup run mnist --learning-rate 0.1", "rampup run mnist lr=0.1"),
        ("rampup sweep mnist --lr 0.1,0.2", "rampup sweep mnist lr=0.1,0.2"),
        ("rampup run --lr 1 -- python a.py", "rampup run lr=1 -- python a.py"),
        ("rampup run mnist --tasks-per-nod 2", "did you mean --tasks-per-node?"),
        ("rampup run mnist --zzz 2", "settings have no dashes: KEY=VALUE; rampup run --help"),
        ("rampup run mnist learning_rate=0.1", "write lr=0.1"),
        ("rampup run mnist bs=3", "write batch_size=3"),
        ("rampup run mnist max_epochs=3", "write epochs=3"),
        ("rampup run mnist trainer.max_epochs=3", "write epochs=3"),
        ("rampup run mnist optimizer.lr=3", "write lr=3"),
        ("rampup run mnist nodes=2", "write resources.nodes=2, or --nodes 2"),
        ("rampup sweep mnist nodes=1,2", "write resources.nodes=1,2, or --nodes 1"),
        ("rampup sweep mnist learning_rate=1,2", "write lr=1,2"),
        ("rampup run train.py", "rampup run -- python train.py"),
        ("rampup run train.py --lr 0.1", "rampup run -- python train.py --lr 0.1"),
        (
            "rampup run nb.ipynb",
            "jupyter nbconvert --to script nb.ipynb, then: rampup run -- python nb.py",
        ),
        ("rampup list --columns lr", "of the list: age"),
        ("rampup run train.sh --nodes 2", "rampup run --nodes 2 -- bash train.sh"),
        ("rampup run python train.py", "rampup run -- python train.py"),
        ("rampup run sh train.sh", "rampup run -- sh train.sh"),
        ("rampup run 'echo hi'", "rampup run -- echo hi"),
        ("rampup run 'a | b'", "rampup run -- bash -c 'a | b'"),
        ("rampup run pkg/model.py:Lit", "write pkg.model:Lit"),
        ("rampup run ./model.py:Lit", "write model:Lit"),
        ("rampup run pkg.model.Lit", "write pkg.model:Lit"),
        ("rampup run pkg.model", "rampup run -- python -m pkg.model"),
        (
            "rampup run digits --nodes 2 --dry-run",
            "--tasks-per-node 2, or --on CLUSTER; `rampup sandbox up` makes a cluster here",
        ),
        ("rampup run mnist more", "a command goes after --, a setting is KEY=VALUE"),
        ("rampup list nope", "known: digits"),
    ],
)
def test_the_hint_is_what_to_type(
    line: str,
    hint: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    (tmp_path / "20260101-000000-digits-abcdef").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAMPUP_RUNS", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("RAMPUP_DEBUG", raising=False)
    monkeypatch.setattr(sys, "argv", shlex.split(line))
    with pytest.raises(SystemExit) as ended:
        main()
    printed = capsys.readouterr()
    first, second = printed.err.splitlines()[-2:]
    assert ended.value.code in (2, 3, 102)
    assert first.startswith("error: ")
    assert second.startswith("hint: ") and hint in second


def test_a_suggested_line_is_accepted(tmp_path: Path) -> None:
    """The corrected lines are lines that resolve."""
    for line in ("rampup run digits epochs=3", "rampup run digits resources.nodes=2"):
        resolve(ask(line), tmp_path)
    with pytest.raises(RampupError):
        resolve(ask("rampup run digits nodes=2"), tmp_path)


def test_a_recipe_of_this_directory_and_a_class_are_not_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sh").mkdir()
    (tmp_path / "sh" / "recipe.toml").write_text("")
    for target in ("./sh", "mnist", "pkg.mod:Lit", "own.toml", "my own/it.toml"):
        assert ask(f"rampup run {shlex.quote(target)}").target == target


# verbs that take more -----------------------------------------------------------------------------


@pytest.mark.parametrize("words", [["-n", "2"], ["--tail", "2"]])
def test_the_last_lines_of_a_log(
    words: list[str], tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    attempt = tmp_path / "20261117-010101-nice-abc234" / "attempts" / "1"
    attempt.mkdir(parents=True)
    (attempt / "rank-0.log").write_bytes(b"1\n2\n3\n4")
    logs.command.main([str(attempt.parents[1]), *words], standalone_mode=False)
    assert capfdbinary.readouterr().out == b"3\n4"


def make_runs(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAMPUP_RUNS", str(root))
    monkeypatch.setenv("XDG_STATE_HOME", str(root))
    for index, name in enumerate(("mnist", "digits", "mnist")):
        (root / f"2026010{index + 1}-000000-{name}-abcde{index}").mkdir()


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        (["mnist"], ["abcde2", "abcde0"]),
        (["mni*"], ["abcde2", "abcde0"]),
        (["--name", "digits"], ["abcde1"]),
        (["-n", "1"], ["abcde2"]),
        (["--limit", "2"], ["abcde2", "abcde1"]),
        (["mnist", "--all", "-n", "1"], ["abcde2"]),
    ],
)
def test_a_list_of_some_runs(
    words: list[str],
    ids: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make_runs(tmp_path, monkeypatch)
    assert listing.command.main([*words, "--json"], standalone_mode=False) == 0
    assert [row["id"] for row in json.loads(capsys.readouterr().out)] == ids


def test_a_report_is_opened_where_there_is_a_browser(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import webbrowser

    from rampup.cli import report

    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: not opened.append(url))
    monkeypatch.setenv("DISPLAY", ":0")
    assert report.open_page(tmp_path / "report.html")
    assert opened == [f"file://{tmp_path}/report.html"]
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("SSH_CONNECTION", "1.2.3.4")
    assert not report.open_page(tmp_path / "report.html")
    assert "no browser" in capsys.readouterr().err
    assert report.how_to_open(tmp_path / "report.html").startswith("on your own machine: scp ")


def test_export_takes_a_study(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from rampup.cli import export

    asked: list[Any] = []

    class Nothing:
        def runs(self) -> list[RunDir]:
            return []

    monkeypatch.setattr(
        export, "select_to_read", lambda wanted, study: asked.append(study) or Nothing()
    )
    export.command.main(
        ["--study", "mine", "--to", "csv", "--dry-run", "--json"], standalone_mode=False
    )
    assert asked == ["mine"]


# help ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["run", "sweep", "resume", "drill"])
def test_help_is_in_groups_and_lists_each_option_once(verb: str) -> None:
    command = cli.get_command(click.Context(cli), verb)
    assert command is not None
    text = command.get_help(click.Context(command, info_name=verb))
    for title in ("Resources:", "Cluster:", "Environment:", "What happens:", "utput:"):
        assert title in text
    # an option that nobody has put into a group would be listed with --help
    assert text.splitlines()[-2:-1] == ["Other:"] and "--help" in text.splitlines()[-1]
