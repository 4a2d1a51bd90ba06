"""The copy of the user's code: what is in it, what is linked, and that a command runs from it as it
ran before."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rampup.rundir.files import create_run, run_directory
from rampup.runs import code as snapshot
from rampup.runs import codetree
from rampup.runs.code import Snapshot, script_index, take

PRINT_DATA = """
import helper
from pathlib import Path
print(helper.VERSION, (Path(__file__).parent / "data" / "x.csv").read_text(), Path("here").exists())
"""


def write(root: Path, **files: str) -> None:
    """`pkg__mod_py` is pkg/mod.py."""
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def git(root: Path, *words: str) -> str:
    names = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false"]
    return subprocess.run(
        ["git", "-C", root, *names, *words], check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script, a module, and ignored data; in no repository, even if the test directory is in
    one."""
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    root = tmp_path / "project"
    write(root, train_py=PRINT_DATA, helper_py="VERSION = 1", data__x_csv="42", notes_bin="b")
    return root


@pytest.fixture
def repository(project: Path) -> Path:
    (project / ".gitignore").write_text("data/\n*.bin\n/runs/\n")
    git(project, "init", "-q")
    git(project, "add", ".")
    git(project, "commit", "-q", "-m", "first")
    return project


@pytest.fixture
def into(tmp_path: Path) -> Path:
    return tmp_path / "elsewhere" / "run" / "code"


def copied(into: Path) -> set[str]:
    """The regular files of the copy."""
    found = (Path(place) / name for place, _, names in os.walk(into) for name in names)
    return {str(path.relative_to(into)) for path in found if not path.is_symlink()}


def linked(into: Path) -> set[str]:
    found = (
        Path(place) / name for place, folders, names in os.walk(into) for name in [*folders, *names]
    )
    return {str(path.relative_to(into)) for path in found if path.is_symlink()}


def ran(taken: Snapshot, cwd: Path) -> str:
    return subprocess.run(taken.argv, cwd=cwd, check=True, capture_output=True, text=True).stdout


# in a repository ----------------------------------------------------------------------------------


def test_every_attempt_runs_the_code_as_submitted(repository: Path, into: Path) -> None:
    taken = take((sys.executable, "-u", "train.py", "--lr", "1"), repository, into)
    assert taken.argv == (sys.executable, "-u", str(into / "train.py"), "--lr", "1")
    assert (taken.root, taken.files, taken.skipped) == (repository, 3, [])
    assert (taken.commit, taken.dirty) == (git(repository, "rev-parse", "HEAD"), False)
    write(repository, train_py="print('changed')", helper_py="VERSION = 2", here="")
    assert ran(taken, repository) == "1 42 True\n"
    assert copied(into) == {"train.py", "helper.py", ".gitignore"} | {
        p for p in copied(into) if "__pycache__" in p
    }
    assert linked(into) == {"data", "notes.bin"}


@pytest.mark.parametrize("change", ["edited", "untracked", "staged", "deleted"])
def test_a_dirty_tree_is_copied_as_it_is(repository: Path, into: Path, change: str) -> None:
    if change == "deleted":
        (repository / "helper.py").unlink()
    else:
        write(repository, **{"new_py" if change == "untracked" else "helper_py": "VERSION = 7"})
    if change == "staged":
        git(repository, "add", ".")
    taken = take(("python", "train.py"), repository, into)
    assert taken.dirty and taken.commit
    names = {"edited": "helper.py", "staged": "helper.py", "untracked": "new.py"}
    if change == "deleted":
        assert not (into / "helper.py").exists()
    else:
        assert (into / names[change]).read_text() == "VERSION = 7"


def test_a_script_below_the_top_finds_what_lies_beside_it(repository: Path, into: Path) -> None:
    write(
        repository,
        exp__run_py="from pathlib import Path; print((Path(__file__).parent / 'data/y').read_text())",
    )
    write(repository, exp__data__y="beside")
    taken = take((sys.executable, "run.py"), repository / "exp", into)
    assert taken.root == repository
    assert taken.argv[1] == str(into / "exp" / "run.py")
    assert ran(taken, repository) == "beside\n"


def test_an_ignored_script_is_copied_all_the_same(repository: Path, into: Path) -> None:
    write(repository, data__own_py="print('own')")
    taken = take((sys.executable, "data/own.py"), repository, into)
    assert taken.argv[1] == str(into / "data/own.py") and ran(taken, repository) == "own\n"
    assert (into / "data" / "x.csv").read_text() == "42"


def test_a_directory_that_git_only_keeps_is_data(repository: Path, into: Path) -> None:
    write(repository, big__readme="", pictures__a__b="x")
    (repository / "pictures" / ".gitkeep").touch()
    git(repository, "add", "-f", "pictures/.gitkeep")
    (repository / ".gitignore").write_text("data/\n*.bin\n/pictures/*\n")
    take(("python", "train.py"), repository, into)
    assert (into / "pictures").is_symlink() and not (into / "big").is_symlink()


def test_large_files_are_named_and_linked(
    repository: Path, into: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / "weights.npz").write_bytes(bytes(5_000_001))
    taken = take(("python", "train.py"), repository, into)
    assert taken.skipped == ["weights.npz: 5.0 MB"]
    assert (into / "weights.npz").is_symlink()
    monkeypatch.setattr(snapshot, "MAX_GIT_MB", 0)
    taken = take(("python", "train.py"), repository, into.parent / "again")
    assert taken.files == 0 and "train.py and all after it: the copy ends at 0 MB" in taken.skipped
    assert taken.argv == ("python", "train.py"), "what was not copied is run where it is"


def test_links_stay_links_and_lead_where_they_led(
    repository: Path, into: Path, tmp_path: Path
) -> None:
    write(tmp_path, outside="far")
    (repository / "inner").symlink_to("helper.py")
    (repository / "outer").symlink_to("../outside")
    (repository / "absolute").symlink_to(repository / "helper.py")
    take(("python", "train.py"), repository, into)
    assert os.readlink(into / "inner") == "helper.py"
    assert (
        os.readlink(into / "outer") == str(tmp_path / "outside")
        and (into / "outer").read_text() == "far"
    )
    assert os.readlink(into / "absolute") == str(repository / "helper.py")


def test_a_directory_that_became_a_link_is_not_followed(
    repository: Path, into: Path, tmp_path: Path
) -> None:
    write(repository, lib__a_py="old")
    git(repository, "add", ".")
    (repository / "lib").rename(tmp_path / "moved")
    (repository / "lib").symlink_to("../moved")
    assert take(("python", "train.py"), repository, into).dirty
    assert os.readlink(into / "lib") == str(tmp_path / "moved")


def test_a_script_that_is_a_link_is_run_through_the_copied_link(
    repository: Path, into: Path, tmp_path: Path
) -> None:
    write(tmp_path, common__tool_py="print('common')")
    (repository / "tool.py").symlink_to("../common/tool.py")
    taken = take((sys.executable, "tool.py"), repository, into)
    assert taken.root == repository and taken.argv[1] == str(into / "tool.py")
    assert ran(taken, repository) == "common\n"


SECRETS = (
    ".env",
    ".env.local",
    ".netrc",
    "id_rsa",
    "id_ed25519.pub",
    "server.pem",
    "deep/tls.key",
    ".ssh/config",
    ".aws/config",
    ".kaggle/kaggle.json",
    "credentials.json",
    "deep/Credentials",
    "secrets.toml",
)


@pytest.mark.parametrize("by_git", ["untracked", "tracked", "no git"])
def test_what_looks_like_credentials_is_named_and_not_copied(
    request: pytest.FixtureRequest, into: Path, by_git: str
) -> None:
    root: Path = request.getfixturevalue("project" if by_git == "no git" else "repository")
    for name in SECRETS:
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("SECRET")
    write(root, deep__model_py="", keys_py="", environment_yml="")
    if by_git == "tracked":
        git(root, "add", "-f", ".")
    taken = take(("python", "train.py"), root, into)
    there = [path for path in into.rglob("*") if path.is_file() and not path.is_symlink()]
    assert not [path for path in there if path.read_text() == "SECRET"]
    assert {"deep/model.py", "keys.py", "environment.yml"} <= copied(into)
    named = {words.partition(":")[0] for words in taken.skipped}
    expected = {"credentials.json", "secrets.toml"} if by_git == "no git" else set(SECRETS)
    assert named == expected
    assert (into / ".env").is_symlink(), "a program that reads it finds the original"
    assert (into / ".env").read_text() == "SECRET"


def test_directories_keep_their_modes(repository: Path, into: Path) -> None:
    write(repository, own__keys_py="", shared__more_py="")
    (repository / "own").chmod(0o700)
    (repository / "shared").chmod(0o777)
    repository.chmod(0o750)
    take(("python", "train.py"), repository, into)
    modes = [path.stat().st_mode & 0o777 for path in (into, into / "own", into / "shared")]
    assert modes == [0o750, 0o700, 0o775]


def test_submodules_and_environments_are_linked_not_copied(repository: Path, into: Path) -> None:
    write(repository, env__pyvenv_cfg="", env__lib__a_py="", sub__b_py="", node__modules="")
    git(repository / "sub", "init", "-q")
    take(("python", "train.py"), repository, into)
    assert {"env", "sub"} <= linked(into) and "env/lib/a.py" not in copied(into)


def test_names_that_git_would_quote(repository: Path, into: Path) -> None:
    name = 'sp ace "q" ü\nnewline.py'
    (repository / name).write_text("x")
    (repository / os.fsdecode(b"\xff.py")).write_text("y")
    take(("python", "train.py"), repository, into)
    assert (into / name).read_text() == "x" and (into / os.fsdecode(b"\xff.py")).read_text() == "y"


def test_before_the_first_commit_there_is_no_commit(project: Path, into: Path) -> None:
    git(project, "init", "-q")
    taken = take(("python", "train.py"), project, into)
    assert (taken.commit, taken.dirty) == ("", True) and (into / "train.py").exists()


def test_the_variables_of_a_git_hook_do_not_mislead(
    repository: Path, into: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "other", x_py="")
    git(tmp_path / "other", "init", "-q")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other" / ".git"))
    assert take(("python", "train.py"), repository, into).commit


# runs inside the project --------------------------------------------------------------------------


def make_run(runs: Path, cwd: Path) -> tuple[Path, Snapshot]:
    """As `rampup run` does it: into a hidden directory that is renamed."""
    created = time.time()
    final = run_directory(runs, "train", f"abcde{len(list(runs.glob('*'))) + 2}", created)
    with create_run(final, {"id": "x"}) as run:
        taken = take(("python", "train.py"), cwd, run.code)
    return final, taken


@pytest.mark.parametrize("kind", ["git, ignored", "git, not ignored", "no git"])
@pytest.mark.parametrize("where", ["runs", "out/runs", "."])
def test_runs_are_never_copied_or_linked(repository: Path, kind: str, where: str) -> None:
    if kind == "no git":
        subprocess.run(["rm", "-rf", repository / ".git"], check=True)
    elif kind == "git, not ignored":
        (repository / ".gitignore").write_text("data/\n*.bin\n")
    write(repository, out__other_bin="kept")
    before = sorted(os.listdir(repository / "out"))
    runs = repository / where
    first, one = make_run(runs, repository)
    second, two = make_run(runs, repository)
    assert one.files == two.files
    assert sorted(set(os.listdir(repository / "out")) - {"runs"}) == before, (
        "the user's own directory was written"
    )
    for final in (first, second):
        inside = copied(final / "code") | linked(final / "code")
        assert {"train.py", "helper.py", "data"} <= inside
        assert not [
            name for name in inside if "abcde" in name or name == "runs" or name == "out/runs"
        ]
        assert where == "." or not (final / "code" / where).exists(), (
            "a link would lead back into the runs"
        )
        assert (final / "code" / "out" / "other.bin").read_text() == "kept"


def test_runs_behind_a_link_are_not_linked_again(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    (repository / "runs").symlink_to(tmp_path / "scratch")
    (repository / ".gitignore").unlink()
    final, _ = make_run(repository / "runs", repository)
    assert not os.path.lexists(final / "code" / "runs") and (final / "code" / "train.py").exists()


def test_a_users_own_run_json_is_no_run(repository: Path, into: Path) -> None:
    write(repository, config__run_json="{}")
    take(("python", "train.py"), repository, into)
    assert (into / "config" / "run.json").is_file() and not (into / "config").is_symlink()


def test_the_copy_is_not_copied_into_itself(repository: Path) -> None:
    taken = take(("python", "train.py"), repository, repository / "copy")
    assert taken.files == 3 and not os.path.lexists(repository / "copy" / "copy")


# without git --------------------------------------------------------------------------------------


def test_without_git_small_text_near_the_script_is_copied(project: Path, into: Path) -> None:
    write(
        project, sub__deep_py="", conf_yaml="", _hidden__a_py="", env__pyvenv_cfg="", env__b_py=""
    )
    write(project, runs__c_py="", node_py="", __pycache____d_py="")
    for folder in ("__pycache__", "node_modules"):
        (project / folder).mkdir()
        (project / folder / "e.py").touch()
    taken = take((sys.executable, "project/train.py"), project.parent, into)
    assert taken.root == project and (taken.commit, taken.dirty) == ("", False)
    assert copied(into) == {"train.py", "helper.py", "sub/deep.py", "conf.yaml", "node.py"}
    assert {"data", "notes.bin", ".hidden", "env", "node_modules"} <= linked(into)
    assert "__pycache__" not in linked(into)
    (project / "helper.py").write_text("VERSION = 9")
    assert ran(taken, project.parent) == "1 42 False\n"


LEADS_ABOVE = [
    'os.path.join(os.path.dirname(__file__), "..", "..", "Datasets")',
    "os.path.join(os.path.dirname(__file__), os.pardir, os.pardir, 'Datasets')",
    "os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + '/Datasets'",
    "os.path.dirname(__file__) + '/../../Datasets'",
    "str(pathlib.Path(__file__).absolute().parents[2] / 'Datasets')",
    "str(pathlib.Path(__file__).absolute().parent.parent.parent / 'Datasets')",
]


@pytest.mark.parametrize("path", LEADS_ABOVE)
def test_without_git_a_path_above_the_script_leads_to_the_users_own_folder(
    project: Path, into: Path, path: str
) -> None:
    """As in Lightning's own examples."""
    data, inner = project / "Datasets", project / "examples" / "basics"
    write(
        project, Datasets__a_csv="42", examples__b_txt="", _secret="", examples__beside_py="X = 7"
    )
    write(inner, train_py="", helper_py="")
    (inner / "train.py").write_text(
        f"import os, pathlib, sys\nplace = {path}\nprint(os.path.realpath(place))\n"
        "print(open(place + '/a.csv').read())\nsys.path.append(os.path.dirname(__file__) + '/..')\n"
        "import beside; print(beside.X)\n"
    )
    taken = take((sys.executable, "train.py"), inner, into)
    assert (taken.root, taken.within) == (project, "examples/basics")
    assert copied(into) == {"examples/basics/train.py", "examples/basics/helper.py"}
    assert {"Datasets", "examples/b.txt"} <= linked(into)
    assert ".secret" not in linked(into)
    assert ran(taken, inner) == f"{data}\n42\n7\n"


@pytest.mark.parametrize("text", ["print('loading...')", "print([*range(3)][...])", "x = '...'"])
def test_without_git_folders_above_are_kept_only_where_code_leads_there(
    project: Path, into: Path, text: str
) -> None:
    (project / "train.py").write_text(text)
    taken = take((sys.executable, "train.py"), project, into)
    assert (taken.root, taken.within) == (project, "")


def test_of_many_entries_above_none_takes_the_place_of_one_beside_the_script(
    project: Path, into: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rampup.runs import code

    monkeypatch.setattr(code, "MAX_LINKS", 4)
    (project / "train.py").write_text("open(__file__ + '/../data/x.csv')")
    write(project.parent, **{f"other{number}_txt": "" for number in range(9)})
    taken = take((sys.executable, "train.py"), project, into)
    assert (into / taken.within / "data").is_symlink()
    assert any("is not linked" in words for words in taken.skipped)


def test_without_git_the_depth_is_limited(project: Path, into: Path) -> None:
    write(project, a__b__c__x_py="", a__b__c__d__x_py="")
    assert take(("python", "train.py"), project, into).skipped == []
    assert "a/b/c/x.py" in copied(into) and "a/b/c/d/x.py" not in copied(into)
    assert (into / "a/b/c/d").is_symlink()


LIMITS = {
    "MAX_WALK_FILES": (snapshot, 1, "more than 1 files: the rest is left out"),
    "MAX_WALK_MB": (snapshot, 0, "train.py and all after it: the copy ends at 0 MB"),
    "MAX_FILE_MB": (snapshot, 0, "helper.py: 0.0 MB"),
    "MAX_LINKS": (snapshot, 1, "more than 1 other entries: the rest of them is not linked"),
    "MAX_DIRECTORIES": (codetree, 2, "1 directories: too many to look into"),
}


@pytest.mark.parametrize("limit", LIMITS)
def test_what_a_limit_leaves_out_is_told(
    project: Path, into: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    module, value, told = LIMITS[limit]
    write(project, sub__x_py="")
    assert take(("python", "train.py"), project, into).skipped == []
    monkeypatch.setattr(module, limit, value)
    assert told in take(("python", "train.py"), project, into.parent / "limited").skipped


def test_git_that_is_not_installed(
    repository: Path, into: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    taken = take(("python", "train.py"), repository, into)
    assert taken.commit == "" and copied(into) == {"train.py", "helper.py"}


@pytest.mark.parametrize("in_git", [False, True])
def test_a_home_directory_is_no_project(
    project: Path, into: Path, monkeypatch: pytest.MonkeyPatch, in_git: bool
) -> None:
    monkeypatch.setenv("HOME", str(project))
    if in_git:
        git(project, "init", "-q")
    write(project, thesis__chapter_txt="")
    assert take(("hostname",), project, into) == (None, 0, "", False, [], ("hostname",), "")
    assert not into.exists()
    assert take(("hostname",), Path("/"), into).root is None
    taken = take((sys.executable, "train.py"), project, into)
    assert copied(into) == {"train.py", "helper.py"} and (into / "thesis").is_symlink()
    assert ran(taken, project) == "1 42 False\n"


def test_a_copy_that_fails_is_not_hidden(project: Path, tmp_path: Path) -> None:
    write(tmp_path, file="")
    with pytest.raises(OSError, match="Not a directory"):
        take(("python", "train.py"), project, tmp_path / "file" / "code")


# which word is the script -------------------------------------------------------------------------

SCRIPTS = {
    "python train.py --lr 1": 1,
    "/usr/bin/python3.11 -u -X dev -W error train.py": 6,
    "python -Xdev -Wignore -OO train.py": 4,
    "python -uX dev train.py": 3,
    "python -- train.py": 2,
    "python -m pkg.mod train.py": None,
    "python -um pkg.mod": None,
    "python -c print(1) train.py": None,
    "python - train.py": None,
    "python": None,
    "python --version": None,
    "bash -euo pipefail job.sh x": 3,
    "bash --rcfile rc job.sh": 3,
    "sh -lc ls": None,
    "./train.sh now": 0,
    "tools/run": 0,
    "torchrun train.py": None,
}


@pytest.mark.parametrize("command", SCRIPTS)
def test_the_script_in_a_command(command: str) -> None:
    assert script_index(command.split()) == SCRIPTS[command]


def test_modules_and_code_stay_as_they_are(repository: Path, into: Path) -> None:
    for number, command in enumerate(
        [("python", "-m", "helper"), ("python", "-c", "pass"), ("make", "train.py")]
    ):
        taken = take(command, repository, into.parent / str(number))
        assert taken.argv == command and taken.files == 3 and taken.commit


def test_a_program_of_the_users_own_is_copied_with_its_mode(repository: Path, into: Path) -> None:
    write(repository, tools__go="#!/bin/sh\necho old")
    (repository / "tools" / "go").chmod(0o755)
    taken = take(("../tools/go",), repository / "data", into)
    write(repository, tools__go="#!/bin/sh\necho new")
    assert taken.argv == (str(into / "tools" / "go"),) and ran(taken, repository) == "old\n"


@pytest.mark.parametrize(
    "command", ["/bin/sh", "env/bin/tool", "../other/tool", "absent/tool", "data"]
)
def test_installed_and_foreign_programs_are_not(repository: Path, into: Path, command: str) -> None:
    write(repository, env__pyvenv_cfg="", env__bin__tool="", data__tool="")
    write(repository.parent, other__tool="")
    assert take((command,), repository, into).argv == (command,)
