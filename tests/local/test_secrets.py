"""No secret of a command, a setting or a variable reaches what others may read: not the files of the
run, and nothing that shows or exports it."""

import json
import os
import stat
from pathlib import Path

from rampup.export.tracker import read_source
from rampup.rundir.files import RunDir

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJyb290In0.SECRET09"
VARIABLES = {
    "SLURM_JWT": JWT,
    "TORCH_HOME": "https://user:SECRET06@host/x",
    "TF_URL": "SECRET07",
    "MY_SESSION": "SECRET08",
}
LOOP = """
import rampup
run = rampup.init(wandb_key="SECRET10", url="https://u:SECRET11@h", lr=0.1)
run.log({"loss": 0.5})
"""
ARGUMENTS = ("--password", "SECRET12", "token=SECRET13", "--api-key=SECRET14", "--lr", "0.1")
IN_A_SHELL = "export MY_TOKEN=SECRET15"
SETTINGS = ("api_key=SECRET16", "note=hf_SECRET17abcdefghij0123456789", "epochs=3")


def test_what_is_secret_is_stored_for_the_owner_alone_and_never_shown(cli, tmp_path: Path) -> None:
    (cli.cwd / ".env").write_text("KEY=SECRET18")
    script = cli.script(LOOP, "loop.py")
    words = ("python", script, *ARGUMENTS, IN_A_SHELL)
    run = RunDir(cli.run_command(*words, options=SETTINGS, **VARIABLES)["dir"])

    open_to_others = [
        path
        for path in run.path.rglob("*")
        if path.is_file() and path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH)
    ]
    assert run.path / "attempts" / "1" / "settings.json" in open_to_others
    assert stat.S_IMODE(run.path.stat().st_mode) & 0o007 == 0
    for path in open_to_others:
        if not path.is_symlink() and path != run.code / "loop.py":
            assert b"SECRET" not in path.read_bytes(), path
    assert "SECRET" not in run.env_file.read_text()
    assert b"SECRET12" in run.config_file.read_bytes(), "the job needs it"

    page = tmp_path / "page.html"
    cli("report", run.id, "--out", page)
    assert "(not shown)" in page.read_text() and "SECRET" not in page.read_text()
    for words in (
        ("show",),
        ("show", "--all"),
        ("show", "--json"),
        ("why",),
        ("list",),
        ("list", "--json", "--columns", "api_key,note,wandb_key,url"),
    ):
        shown = cli(*words).stdout
        assert "SECRET" not in shown, words
    assert "--password '(not shown)'" in cli("show", "--all").stdout
    cli("export", run.id, "--to", "csv", "--out", tmp_path / "rows.csv")
    assert "SECRET" not in (tmp_path / "rows.csv").read_text()
    settings = read_source(run).settings
    assert "SECRET" not in json.dumps(settings) and settings["epochs"] == 3


def test_the_program_gets_its_secrets(cli) -> None:
    script = cli.script("import sys, rampup; print(sys.argv[1:], rampup.init().config['api_key'])")
    run = cli.run_command("python", script, *ARGUMENTS, options=SETTINGS)
    log = RunDir(run["dir"]).attempt(1).rank_log(0).read_text()
    assert log.startswith(f"{list(ARGUMENTS)} SECRET16\n")


def test_a_profile_shares_with_the_group(cli) -> None:
    home = cli.cwd / "config"
    folder = home / "rampup" / "clusters"
    folder.mkdir(parents=True)
    (folder / "local.toml").write_text('share = "group"\n')
    before = os.umask(0o077)
    try:
        run = RunDir(cli.run_command("true", XDG_CONFIG_HOME=str(home))["dir"])
    finally:
        os.umask(before)
    assert stat.S_IMODE(run.path.stat().st_mode) & 0o777 == 0o750
    assert stat.S_IMODE(run.config_file.stat().st_mode) == 0o640
    (folder / "local.toml").write_text('share = "everyone"\n')
    refused = cli("run", "--", "true", check=3, XDG_CONFIG_HOME=str(home)).stderr
    assert "share" in refused and "local.toml" in refused
