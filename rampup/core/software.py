"""What the ranks of a run run in: modules, then a venv, a conda environment or a container, then
variables. Pure text.

`of` says what a run gets, `setup` the lines of shell that make it so: in the job script of Slurm,
and in front of the ranks on this machine. docs/environments.md explains it. Nothing is looked up
here; diagnose/checks/software.py does.
"""

import os
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct

from rampup.core.shell import fill
from rampup.core.spec import RunSpec
from rampup.errors import Refused, nearest

NONE = "none"
NOT_READY = 78
"""What the lines end with when something is missing; EX_CONFIG of sysexits.h."""
BARE_PYTHON = re.compile(r"python[\d.]*")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
LONGEST_VARIABLE = 128 * 1024
"""Linux starts no program with a longer one in its environment, the end counted in."""

Kind = Literal["", "venv", "conda", "container"]
KINDS: tuple[Kind, ...] = ("conda", "container")
"""Those that are named before a colon."""

LINES = Path(__file__).with_name("software.sh")


class Software(Struct, frozen=True, kw_only=True):
    """What one run gets; config.json has it under `environment`."""

    modules: list[str] = []
    """In the order in which they are loaded."""
    env: str = ""
    """An absolute path, conda:NAME, container:IMAGE; or empty."""
    container: list[str] = []
    """The words before the program, when it runs in a container."""
    module_init: str | None = None
    module_use: list[str] = []
    module_purge: bool = True
    variables: dict[str, str] = {}


def of(spec: RunSpec, run_dir: Path) -> Software:
    cluster = spec.cluster
    modules, env = [*cluster.modules, *list_modules(spec)], env_of(spec)
    check_variables(cluster.variables, cluster.name)
    for word in (*modules, *cluster.module_use, cluster.module_init or "", env):
        if not word.isprintable():
            raise Refused(
                f"{word!r} is not a name of a module or an environment",
                "use printable characters",
            )
    return Software(
        modules=modules,
        env=env,
        container=list(container_words(spec, run_dir)),
        module_init=cluster.module_init,
        module_use=cluster.module_use,
        module_purge=cluster.module_purge,
        variables=cluster.variables,
    )


def check_variables(env: Mapping[str, str], profile: str) -> None:
    for name, value in env.items():
        if not VARIABLE.fullmatch(name):
            raise Refused(
                f"{name!r} in the profile {profile} is not the name of a variable",
                "letters, digits and _",
            )
        if "\0" in value or len(f"{name}={value}\0".encode()) > LONGEST_VARIABLE:
            why = (
                "holds a zero byte"
                if "\0" in value
                else f"is longer than {LONGEST_VARIABLE // 1024} kB"
            )
            raise Refused(
                f"{name} = {value[:60]!r} in the profile {profile} {why}",
                "a program can't be given such a value",
            )


def list_modules(spec: RunSpec) -> list[str]:
    """The site's list of modules that the run gets: the one asked for, or for a plain command the
    site's default."""
    cluster, asked = spec.cluster, spec.resources.software
    name = asked or (cluster.default_software if spec.kind == "command" else "") or NONE
    if name == NONE:
        return []
    if name not in cluster.software:
        known = nearest(name, cluster.software) if cluster.software else "leave out --software"
        whose = "" if asked else ", which is default_software in its profile"
        raise Refused(f"cluster {cluster.name} has no list of modules {name!r}{whose}", known)
    return cluster.software[name]


def env_of(spec: RunSpec) -> str:
    """The one asked for; the site's default is for engines, which need rampup in it, and for
    scripts of recipes."""
    found = (
        spec.resources.env or (spec.cluster.environment if spec.kind != "command" else "") or NONE
    )
    return "" if found == NONE else found


def kind_of(env: str) -> tuple[Kind, str]:
    """What an environment is, and its name or path."""
    for kind in KINDS:
        if env.startswith(f"{kind}:"):
            return kind, env.removeprefix(f"{kind}:")
    return ("venv", env) if env else ("", "")


def absolute(env: str, base: Path) -> str:
    """A path is meant as it is here and now: a job starts elsewhere."""
    kind, rest = kind_of(env)
    if env == NONE or not rest or (kind == "conda" and "/" not in rest) or "://" in rest:
        return env
    path = os.path.normpath(base / os.path.expanduser(rest))
    return path if kind == "venv" else f"{kind}:{path}"


def brings_python(spec: RunSpec) -> bool:
    """Whether the word `python` of a command means one that is found only in the job."""
    return bool(env_of(spec) or list_modules(spec))


def python_of(spec: RunSpec) -> str:
    """The Python of a recipe: the environment's, or the one that rampup runs with."""
    kind, rest = kind_of(env_of(spec))
    if kind == "venv":
        return f"{rest}/bin/python"
    return "python" if kind else sys.executable


def container_words(spec: RunSpec, run_dir: Path) -> tuple[str, ...]:
    """`apptainer exec … IMAGE`; the program is looked up inside. A script of ours lies outside of
    the run directory."""
    kind, image = kind_of(env_of(spec))
    if kind != "container":
        return ()
    options = list(spec.cluster.container_options)
    if spec.resources.gpus_per_node > 0 and "--rocm" not in options:
        options.append("--nv")
    places = dict.fromkeys((str(run_dir), spec.cwd))
    if spec.kind == "script" and spec.recipe is not None:
        places[spec.recipe.folder] = None
    binds = [word for place in places for word in ("--bind", place)]
    return ("apptainer", "exec", *options, *binds, "--pwd", spec.cwd, image)


# lines of shell -----------------------------------------------------------------------------------


def setup(software: Software) -> str:
    """The lines, or none. They use $attempt_dir and $host, and call `not_ready MESSAGE`, which must
    not return."""
    kind, rest = kind_of(software.env)
    found: dict[str, str] = {
        known: shlex.quote(rest) if kind == known else "" for known in ("venv", *KINDS)
    }
    init = software.module_init
    return fill(
        LINES,
        {
            "prepares": bool(software.modules) or kind in ("venv", "conda"),
            "modules": bool(software.modules),
            "module_init": shlex.quote(init) if init and software.modules else "",
            "module_calls": "".join(f"call_module {words}\n" for words in _call_modules(software)),
            "exports": exports(software.variables),
            **found,
        },
    )


def home(words: list[str], profile: str) -> str:
    """The line that moves $HOME to what compute nodes see; once done it changes nothing more."""
    if not words:
        return ""
    if len(words) != 2 or not all(word.startswith("/") and word.isprintable() for word in words):
        raise Refused(
            f"home = {words} in the profile {profile} is not two paths",
            'home = ["/home/", "/work/"]',
        )
    # always quoted: a / would end a word
    before, after = ("'" + word.replace("'", "'\"'\"'") + "'" for word in words)
    return f"export HOME=${{HOME/#{before}/{after}}}  # compute nodes do not see the usual one\n"


def exports(env: Mapping[str, str]) -> str:
    """Lines that set the variables of a profile, to the letter."""
    lines = []
    for name, value in env.items():
        if "$" in value or "`" in value:
            lines.append(
                "# shellcheck disable=SC2016  # to the letter: nothing in it is for the shell\n"
            )
        lines.append(f"export {name}={shlex.quote(value)}\n")
    return "".join(lines)


def _call_modules(software: Software) -> list[str]:
    calls = ["purge"] if software.module_purge else []
    calls += [f"use {shlex.quote(folder)}" for folder in software.module_use]
    calls += [f"load {shlex.quote(name)}" for name in software.modules]
    return calls
