"""The words in braces of the tables of `rampup why`: values of one run that make a remedy exact.

Each method is one word. A group of the expression that fitted goes before a method of the same
name; in a remedy, which people copy into a shell, such a group is quoted. What a run does not tell
becomes a general word, never a guess.
"""

import math
import os
import shlex
import sys
from collections.abc import Mapping

from rampup.core.environment import kind_of
from rampup.core.units import parse_memory_mb
from rampup.diagnose.advice import Facts, Undefined, loss_not_finite
from rampup.diagnose.why.clues import Case
from rampup.diagnose.why.logs import clean
from rampup.diagnose.why.signs import whole_of
from rampup.rundir.files import slurm_log_name
from rampup.rundir.records import read_json, read_jsonl
from rampup.schedulers.slurm.options import clock

PACKAGES = {
    "PIL": "pillow",
    "cv2": "opencv-python-headless",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
"""Modules whose package has another name."""
LONGEST_WORD = 160
"""What comes after it in the sentence is worth more than its end."""
MARGIN = 1.25
"""More time than the progress so far asks for."""


class Words:
    def __init__(self, case: Case, groups: Mapping[str, str], quoted: bool) -> None:
        self._case, self._quoted = case, quoted
        self._groups = {name: clean(text, LONGEST_WORD) for name, text in groups.items() if text}
        self._train = case.config.get("train") or {}
        self._resources = case.config.get("resources") or {}
        self._command = [clean(word) for word in case.config.get("command") or []]

    def __getitem__(self, name: str) -> str:
        if name in self._groups:
            return shlex.quote(self._groups[name]) if self._quoted else self._groups[name]
        return str(getattr(self, name)())

    # who and where --------------------------------------------------------------------------------

    def run(self) -> str:
        return self._case.run.id

    def run_dir(self) -> str:
        return shlex.quote(clean(str(self._case.run.path)))

    def rank(self) -> str:
        return "a rank" if self._case.first.rank is None else f"rank {self._case.first.rank}"

    def who(self) -> str:
        node = self._case.first.node
        return f"{self.rank()} on {node}" if node else self.rank()

    def at(self) -> str:
        return f", at {self._place()}" if self._case.place else ""

    def edit(self) -> str:
        again = f"rampup resume {self.run()} --code current"
        return f"correct {self._place()}, then: {again}" if self._case.place else self.logs()

    def _place(self) -> str:
        """As the user knows the file: not in the copy that ran, but where it was taken from."""
        place = self._case.place
        assert place is not None
        folders = (self._case.run.code, self._case.config.get("cwd"))
        for folder in folders:
            if folder and place.file.startswith(f"{folder}{os.sep}"):
                return f"{clean(os.path.relpath(place.file, folder))}:{place.line}"
        return f"{clean(place.file)}:{place.line}"

    def logs(self) -> str:
        rank = self._case.first.rank
        return f"rampup logs {self.run()}" + (f" --rank {rank}" if rank else "")

    def look(self) -> str:
        return self.logs() if self._case.attempt else f"ls {self.run_dir()}"

    def slurm_log(self) -> str:
        job = self._case.facts.get("job")
        return (
            clean(str(self._case.run.slurm_log(job)))
            if job
            else f"{self.run_dir()}/{slurm_log_name('*')}"
        )

    def last_words(self) -> str:
        last = self._case.last_line
        return f"; its last words: {clean(last.text.strip(), LONGEST_WORD)}" if last else ""

    def hint(self) -> str:
        return clean(str(self._case.first.error.get("hint") or "")) or self.logs()

    def error(self) -> str:
        told = [clue.text for clue in self._case.clues if clue.kind in ("error", "said")]
        return clean(told[0], LONGEST_WORD) if told else "it left no word"

    # the program ----------------------------------------------------------------------------------

    def command(self) -> str:
        return shlex.join(self._command)

    def arguments(self) -> str:
        return shlex.join(self._command[1:])

    def program(self) -> str:
        return self._command[0] if self._command else "the program"

    def python(self) -> str:
        argv = self._case.config.get("argv") or ["python"]
        return clean(shlex.quote(argv[0])) if "python" in os.path.basename(argv[0]) else "python"

    def python_with_rampup(self) -> str:
        kind, rest = kind_of(str((self._case.config.get("environment") or {}).get("env") or ""))
        if kind == "container":
            return "an image that has rampup in it: pip install rampup, where it is built"
        if kind:
            where = (
                f"conda run -n {shlex.quote(rest)} python"
                if kind == "conda"
                else shlex.quote(f"{rest}/bin/python")
            )
            return clean(f"{where} -m pip install rampup")
        return f"rampup run -- {shlex.quote(sys.executable)} {self.arguments()}"

    def package(self) -> str:
        top = self._groups.get("module", "").partition(".")[0]
        return PACKAGES.get(top, top)

    def cwd(self) -> str:
        return clean(str(self._case.config.get("cwd") or "."))

    def file(self) -> str:
        return "the file that it wanted"

    def look_at_file(self) -> str:
        return (
            f"ls -ld {shlex.quote(self._groups['file'])}" if "file" in self._groups else self.logs()
        )

    def calmer(self) -> str:
        """What the report advises for the same loss."""
        undefined = {"loss": Undefined(0, since=0)}
        found = [
            finding.remedy
            for finding in loss_not_finite(Facts(train=self._train, undefined=undefined))
        ]
        return found[0] if found else "lower the learning rate"

    def modules_remedy(self) -> str:
        name = self._groups.get("module")
        if not name:
            return "module_init in the profile of the cluster: the file that defines the command module"
        look = (
            f"module spider {shlex.quote(name)}"
            if self._on_slurm()
            else f"module avail {shlex.quote(name)}"
        )
        return (
            f"{look} there; then correct the list in the profile, or choose another one: --software"
        )

    # what to ask for ------------------------------------------------------------------------------

    def limit(self) -> str:
        seconds = self._case.config.get("time_s")
        return f" of {clock(int(seconds))}" if seconds else ""

    def progress(self) -> str:
        step, steps = self._step()
        return f", at step {step} of {steps}" if step and steps else ""

    def more_time(self) -> str:
        """Enough for the steps that were left, if the run told how many there are; otherwise twice
        as much."""
        limit, (step, steps) = self._case.config.get("time_s"), self._step()
        if not limit:
            return "with a longer limit"
        needed = limit * steps / step * MARGIN if step and steps else 2 * limit
        return clock(math.ceil(max(needed, limit * MARGIN) / 60) * 60)

    def _step(self) -> tuple[int, int]:
        beat = read_json(self._case.attempt.progress_file) if self._case.attempt else {}
        return whole_of(beat, "step"), whole_of(beat, "steps")

    def more_mem(self) -> str:
        """Twice of what was asked for; otherwise half as much again as was measured."""
        asked = parse_memory_mb(str(self._resources.get("mem") or ""))
        if asked:
            return f"{math.ceil(asked * 2 / 1024)}G"
        attempt = self._case.attempt
        files = attempt.path.glob(attempt.system_file("*").name) if attempt else []
        used = max(
            (whole_of(row, "rss_mb") for path in files for row in read_jsonl(path)), default=0
        )
        return f"{math.ceil(used * 1.5 / 1024) + 1}G" if used else "16G"

    def less_memory(self) -> str:
        return (
            f"rampup resume {self.run()} --mem {self.more_mem()}"
            if self._on_slurm()
            else self.smaller_batch()
        )

    def smaller_batch(self) -> str:
        """Accumulation keeps the result the same; with a program of the user's own we know no
        setting."""
        if "accumulate" in self._train:
            return f"accumulate={2 * max(1, whole_of(self._train, 'accumulate'))}, the same batch in smaller pieces"
        size = self._train.get("batch_size")
        return (
            f"batch_size={max(1, size // 2)}"
            if isinstance(size, int)
            else "a smaller batch, or less data at a time"
        )

    def gpu_remedy(self) -> str:
        if "device" in self._train:
            return "device=auto"
        return (
            "--gpus-per-node 1"
            if self._on_slurm() and not self._resources.get("gpus_per_node")
            else "rampup doctor"
        )

    def node(self) -> str:
        nodes = str(self._case.facts.get("nodes") or "")
        return nodes if nodes and not set("[,") & set(nodes) else "one of them"

    def without_node(self) -> str:
        node = self._groups.get("node")
        return f" --exclude {shlex.quote(node)}" if node else "; sinfo -R shows the node"

    def killed_by(self) -> str:
        job = self._case.facts.get("job")
        return (
            f"sacct -j {job} -o JobID,State,MaxRSS"
            if job
            else "dmesg -T | grep -i 'killed process'"
        )

    def after_cancel(self) -> str:
        job = self._case.facts.get("job")
        return (
            f"sacct -X -j {job} -o State%30,End"
            if job
            else "--detach keeps a run when its terminal or shell ends"
        )

    def _on_slurm(self) -> bool:
        return self._case.facts.get("launcher") == "srun"
