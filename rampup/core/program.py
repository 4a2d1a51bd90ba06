"""What a command's run can be asked to do for a program that does not import rampup. Each key of
[program] is declared here, once.

config/setting_tables.py makes the table from `Program`, cli/run.py the options, tools/reference.py
the page. `--metric` is parsed here too, for the command line, which refuses what is not a pattern,
and for the job side, which looks for it in the log. Pure.
"""

import re
from typing import Annotated, Literal

from msgspec import Struct

from rampup.core.resources import Asked
from rampup.errors import Refused

PROGRAM = "Your program"
"""The group of its options in --help."""
NAMED = re.compile(r"([A-Za-z_][\w./-]*)=(.*)", re.DOTALL)
PLACES = ("step", "epoch")
"""Names that say where a row belongs: no measurements."""


class Program(Struct, frozen=True, kw_only=True):
    """What a command's run is asked for besides resources."""

    metric: Annotated[
        list[str],
        Asked(
            "a metric in what the program prints: NAME=REGEX, or a regex with named groups; "
            "may be repeated",
            "NAME=REGEX",
            PROGRAM,
        ),
    ] = []
    stop_signal: Annotated[
        Literal["TERM", "INT", "USR1", "USR2"] | None,
        Asked(
            "signal that asks the program to save and end, before the time limit and on preemption: "
            "TERM, INT, USR1 or USR2; rampup then restarts it",
            "SIGNAL",
            PROGRAM,
        ),
    ] = None
    stop_lead: Annotated[
        str | None,
        Asked(
            "how long before the time limit to send that signal, e.g. 120s or 5min; at most a "
            "quarter of the limit (default: resources.lead_s)",
            "TIME",
            PROGRAM,
        ),
    ] = None
    again: Annotated[
        bool,
        Asked(
            "restart the program after the time limit; it must resume by itself",
            "yes",
            PROGRAM,
        ),
    ] = False
    progress: Annotated[
        list[str],
        Asked(
            "restart after a time limit only if a file of this path has changed, e.g. 'out/*.pt'; "
            "may be repeated",
            "PATH",
            PROGRAM,
        ),
    ] = []
    on_resume: Annotated[
        str,
        Asked(
            "words to add to the command on a restart, e.g. '--resume'; with --progress, only if "
            "such a file exists",
            "WORDS",
            PROGRAM,
        ),
    ] = ""

    @property
    def resumes_itself(self) -> bool:
        """Whether it continues after a time limit without checkpoints of rampup."""
        return self.again or self.stop_signal is not None


LEAD = re.compile(r"(\d+) ?(s|min|m|h)?")
LEAD_UNITS_S = {None: 1, "s": 1, "min": 60, "m": 60, "h": 3600}


def parse_lead_s(text: str) -> int:
    """Return the seconds of `--stop-lead`; a bare number is seconds, as after Slurm's --signal."""
    found = LEAD.fullmatch(text.strip())
    if found is None or int(found[1]) == 0:
        raise Refused(f"--stop-lead {text!r} is not understood", "write 120s, 5min or 1h")
    return int(found[1]) * LEAD_UNITS_S[found[2]]


class Pattern:
    """One `--metric`: a regular expression, and the names of what its groups hold."""

    def __init__(self, text: str) -> None:
        self.text = text
        name, regex = "", text
        found = NAMED.fullmatch(text)
        if found is not None and "(?P<" not in text:
            name, regex = found.groups()
        try:
            self.regex = re.compile(regex)
        except re.error as error:
            raise Refused(
                f"--metric {text!r}: {regex!r} is not a regular expression: {error}",
                r"--metric 'loss=loss (\S+)'",
            ) from None
        groups = dict.fromkeys([name], 1) if name else self.regex.groupindex
        if not groups or self.regex.groups == 0:
            raise Refused(
                f"--metric {text!r} does not say which part is the number, and what it is called",
                r"--metric 'loss=loss (\S+)', or named groups: 'step (?P<step>\d+) loss (?P<loss>\S+)'",
            )
        self.groups = dict(groups)
        """The names, each with the number of its group."""

    def find(self, line: str) -> dict[str, str]:
        """Return the texts of the groups in a line, by name; empty where it does not match."""
        match = self.regex.search(line)
        if match is None:
            return {}
        return {name: text for name, group in self.groups.items() if (text := match[group])}
