"""The words in which `rampup why` thinks: a clue is what a run left behind, a problem is a row of
the catalogue.

A problem is recognised by signs: a kind of clue and a regular expression that one of them must fit.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

Kind = Literal[
    "state",  # our own: failed, timeout, ..., with its cause
    "slurm-state",  # Slurm's word for how the job ended
    "slurm",  # a line of slurm-<job>.log in this attempt
    "again",  # why the job script started the run again
    "cancel",  # who cancelled
    "exit",  # how the rank that failed first ended: "signal 9 ...", "code 3 ..."
    "said",  # what rampup itself said in that rank, with a hint
    "error",  # the exception that ended it
    "log",  # one of its last lines
    "left-out",  # a file that is not in the copy of the code
    "memory",  # a machine whose memory was full
    "metric",  # a loss that is no number
    "silence",  # nothing was written for long
    "world",  # how many ranks there were
]


class Clue(NamedTuple):
    """Something that may tell why, and where it stands."""

    kind: Kind
    text: str
    file: str = ""
    """Inside the run directory."""
    line: int | None = None


class Problem(NamedTuple):
    id: str
    signs: Mapping[Kind, str]
    """Any of them is enough."""
    cause: str
    """A whole sentence."""
    remedy: str
    """One command, setting or edit."""
    also: Mapping[Kind, str] = {}
    """One of these too."""
    known: bool = True
    """False where the sentence is that nobody knows."""
    harmless: bool = False
    """Nothing is wrong: somebody wanted it so."""
