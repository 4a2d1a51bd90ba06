"""The words in braces of problems.toml: values of one run that make a sentence or a remedy exact.

Each public method of `Words` is one word. A named group of the signs that matched wins over a
method of the same name; in a remedy, which people copy into a shell, the group is quoted. Called by
explain.py. Where a run did not record a value, the word is a general one, never a guess.
"""

import math
import os
import shlex
import sys
from collections.abc import Mapping

from rampup.core.redact import redact_words
from rampup.core.software import kind_of
from rampup.core.units import parse_memory_mb
from rampup.diagnose.why.clues import ERRORS, Case
from rampup.diagnose.why.logs import clean
from rampup.diagnose.why.measured import read_count
from rampup.rundir.files import slurm_log_name
from rampup.rundir.records import read_json, read_jsonl
from rampup.runs.apart import find_apart_of, remedy_of
from rampup.schedulers.slurm.sbatch_options import clock

PACKAGES = {
    "PIL": "pillow",
    "cv2": "opencv-python-headless",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
"""Modules whose package has another name."""
LONGEST_WORD = 160
"""The rest of the sentence is worth more than the end of a long word."""
NO_TEXT = "no message"
"""For a named group that matched nothing, where no text has that name."""
MARGIN = 1.25
"""How much more time to ask for than the progress so far suggests."""


class Words:
    """The words for one case and for the named groups of its signs."""

    def __init__(self, case: Case, groups: Mapping[str, str], quoted: bool) -> None:
        self._case, self._quoted = case, quoted
        self._groups = {name: clean(text, LONGEST_WORD) for name, text in groups.items() if text}
        self._train = case.config.get("train") or {}
        self._resources = case.config.get("resources") or {}
        self._command = [clean(word) for word in redact_words(case.config.get("command") or [])]

    def __getitem__(self, name: str) -> str:
        if name in self._groups:
            return shlex.quote(self._groups[name]) if self._quoted else self._groups[name]
        word = getattr(self, name, None)
        return str(word()) if word else NO_TEXT

    # the run and its ranks ------------------------------------------------------------------------

    def run(self) -> str:
        """The id of the run."""
        return self._case.run.id

    def run_dir(self) -> str:
        """The run directory, quoted for the shell."""
        return shlex.quote(clean(str(self._case.run.path)))

    def rank(self) -> str:
        """The rank that failed first: `rank 1`."""
        return "a rank" if self._case.suspect.rank is None else f"rank {self._case.suspect.rank}"

    def rank_on_node(self) -> str:
        """The rank that failed first: `rank 1 on node2`, or `rank 1` where no node is known."""
        node = self._case.suspect.node
        return f"{self.rank()} on {node}" if node else self.rank()

    def at_line(self) -> str:
        """The line of the user's code, after a comma: `, at train.py:9`; or nothing."""
        return f", at {self._place()}" if self._case.place else ""

    def join_ranks(self) -> str:
        """What makes ranks meet that never talked to each other."""
        apart = find_apart_of(self._case.run, self._case.state.name)
        return remedy_of(self._case.run, apart) if apart else self.show_log()

    def correct_line(self) -> str:
        """How to continue after the user has corrected that line."""
        resume = f"rampup resume {self.run()} --code current"
        if not self._case.place:
            return self.show_log()
        verb = "look at" if self._case.in_package else "correct"
        if self._is_in_the_call():
            return f"{verb} {self._place()}, then call rampup.launch again"
        return f"{verb} {self._place()}, then: {resume}"

    def _is_in_the_call(self) -> bool:
        """Whether the line is of a function whose code travelled by value: a run that is resumed
        calls the function as it was."""
        function = self._case.config.get("function")
        if not isinstance(function, dict) or function.get("by") != "value":
            return False
        place = self._case.place
        return place is not None and not place.file.startswith(f"{self._case.run.code}{os.sep}")

    def _place(self) -> str:
        """The line as the user knows it: not in the copy that ran, but in the original file."""
        place = self._case.place
        assert place is not None
        code = self._case.run.code
        taken = read_json(self._case.run.env_file).get("code")
        within = str((taken or {}).get("within") or "") if isinstance(taken or {}, dict) else ""
        for folder in (code / within, code, self._case.config.get("cwd")):
            if folder and place.file.startswith(f"{folder}{os.sep}"):
                return f"{clean(os.path.relpath(place.file, folder))}:{place.line}"
        return f"{clean(place.file)}:{place.line}"

    def show_log(self) -> str:
        """The command that shows the log of the rank that failed first."""
        rank = self._case.suspect.rank
        return f"rampup logs {self.run()}" + (f" --rank {rank}" if rank else "")

    def where_to_look(self) -> str:
        """The command that shows that log, or the files of a run that has no attempt."""
        return self.show_log() if self._case.attempt else f"ls {self.run_dir()}"

    def slurm_log(self) -> str:
        """The path of Slurm's log."""
        job = self._case.facts.get("job")
        return (
            clean(str(self._case.run.slurm_log(job)))
            if job
            else f"{self.run_dir()}/{slurm_log_name('*')}"
        )

    def last_line(self) -> str:
        """The last line of the rank's log, after a semicolon; or nothing."""
        last = self._case.last_line
        return f"; last output: {clean(last.text.strip(), LONGEST_WORD)}" if last else ""

    def hint(self) -> str:
        """The hint of the error that rampup itself raised."""
        return clean(str(self._case.suspect.error.get("hint") or "")) or self.show_log()

    def error(self) -> str:
        """The error that ended the rank: type and message."""
        errors = [clue.text for clue in self._case.clues if clue.source in ERRORS]
        return clean(errors[-1], LONGEST_WORD) if errors else "it recorded no exit"

    # the program ----------------------------------------------------------------------------------

    def command(self) -> str:
        """The command that the user gave."""
        return shlex.join(self._command)

    def arguments(self) -> str:
        """The command without its first word."""
        return shlex.join(self._command[1:])

    def program(self) -> str:
        """The first word of the command."""
        return self._command[0] if self._command else "the program"

    def python(self) -> str:
        """The Python that ran the program."""
        argv = self._case.config.get("argv") or ["python"]
        return clean(shlex.quote(argv[0])) if "python" in os.path.basename(argv[0]) else "python"

    def python_with_rampup(self) -> str:
        """How to run the program with a Python that has rampup."""
        kind, name = kind_of(str((self._case.config.get("environment") or {}).get("env") or ""))
        if kind == "container":
            return "use an image with rampup: add pip install rampup where you build it"
        if not kind:
            return f"rampup run -- {shlex.quote(sys.executable)} {self.arguments()}"
        python = shlex.quote(f"{name}/bin/python")
        if kind == "conda":
            python = f"conda run -n {shlex.quote(name)} python"
        return clean(f"{python} -m pip install rampup")

    def package(self) -> str:
        """The package that has the module of the group `module`."""
        top = self._groups.get("module", "").partition(".")[0]
        return PACKAGES.get(top, top)

    def cwd(self) -> str:
        """The directory where the program ran."""
        return clean(str(self._case.config.get("cwd") or "."))

    def file(self) -> str:
        """For signs whose group `file` may be empty."""
        return "the file"

    def list_file(self) -> str:
        """The command that shows who may use the file of the group `file`."""
        file = self._groups.get("file")
        return f"ls -ld {shlex.quote(file)}" if file else self.show_log()

    def loss_remedy(self) -> str:
        """The report's advice about a loss that is not finite."""
        # not for all other problems: it costs a failing run a millisecond
        from rampup.diagnose.advice import Facts, Undefined, loss_not_finite

        facts = Facts(train=self._train, undefined={"loss": Undefined(0, since=0)})
        advice = [finding.remedy for finding in loss_not_finite(facts)]
        return advice[0] if advice else "lower the learning rate"

    def modules_remedy(self) -> str:
        """How to find the module of the group `module`, or the command `module` itself."""
        name = self._groups.get("module")
        if not name:
            return "module_init in the profile of the cluster: the file that defines the command module"
        look = f"module {'spider' if self._was_a_job() else 'avail'} {shlex.quote(name)} there"
        return f"{look}; then correct the list in the profile, or choose another one: --software"

    # what to ask for ------------------------------------------------------------------------------

    def of_time_limit(self) -> str:
        """The time limit: ` of 0-01:00:00`; or nothing."""
        seconds = self._case.config.get("time_s")
        return f" of {clock(int(seconds))}" if seconds else ""

    def at_step(self) -> str:
        """The progress, after a comma: `, at step 40 of 100`; or nothing."""
        step, steps = self._progress()
        return f", at step {step} of {steps}" if step and steps else ""

    def more_time(self) -> str:
        """Enough time for all steps, if the run recorded how many there are; otherwise twice the
        limit."""
        limit_s, (step, steps) = self._case.config.get("time_s"), self._progress()
        if not limit_s:
            return "with a longer limit"
        needed_s = limit_s * steps / step * MARGIN if step and steps else 2 * limit_s
        return clock(math.ceil(max(needed_s, limit_s * MARGIN) / 60) * 60)

    def _progress(self) -> tuple[int, int]:
        progress = read_json(self._case.attempt.progress_file) if self._case.attempt else {}
        return read_count(progress, "step"), read_count(progress, "steps")

    def more_memory(self) -> str:
        """Twice the memory that was asked for; otherwise half as much again as was measured."""
        asked_mb = parse_memory_mb(str(self._resources.get("mem") or ""))
        if asked_mb:
            return f"{math.ceil(asked_mb * 2 / 1024)}G"
        used_mb = self._used_mb()
        return f"{math.ceil(used_mb * 1.5 / 1024) + 1}G" if used_mb else "16G"

    def _used_mb(self) -> int:
        attempt = self._case.attempt
        files = attempt.path.glob(attempt.system_file("*").name) if attempt else []
        samples = (row for path in files for row in read_jsonl(path))
        return max((read_count(row, "rss_mb") for row in samples), default=0)

    def memory_remedy(self) -> str:
        """How to get more memory for a job, or how to use less on this machine."""
        if self._was_a_job():
            return f"rampup resume {self.run()} --mem {self.more_memory()}"
        return self.smaller_batch()

    def smaller_batch(self) -> str:
        """The setting that makes batches smaller. Accumulation keeps the result the same; the
        settings of the user's own program are not known."""
        if "accumulate" in self._train:
            pieces = 2 * max(1, read_count(self._train, "accumulate"))
            return f"accumulate={pieces}, the same batch in smaller pieces"
        size = self._train.get("batch_size")
        if isinstance(size, int):
            return f"batch_size={max(1, size // 2)}"
        return "a smaller batch, or less data at a time"

    def gpu_remedy(self) -> str:
        """How to get a GPU, or how to do without one."""
        if "device" in self._train:
            return "device=auto"
        asked = self._resources.get("gpus_per_node")
        return "--gpus-per-node 1" if self._was_a_job() and not asked else "rampup doctor"

    def node(self) -> str:
        """The node, if the job had only one."""
        nodes = str(self._case.facts.get("nodes") or "")
        return nodes if nodes and not set("[,") & set(nodes) else "one of them"

    def exclude_node(self) -> str:
        """The option that avoids the node of the group `node`, or how to find it."""
        node = self._groups.get("node")
        return f" --exclude {shlex.quote(node)}" if node else "; sinfo -R shows the node"

    def memory_check(self) -> str:
        """The command that shows whether memory was the reason for a SIGKILL."""
        job = self._case.facts.get("job")
        if job:
            return f"sacct -j {job} -o JobID,State,MaxRSS"
        return "dmesg -T | grep -i 'killed process'"

    def cancel_remedy(self) -> str:
        """How to find out who cancelled a job, or how to keep a run on this machine."""
        job = self._case.facts.get("job")
        if job:
            return f"sacct -X -j {job} -o State%30,End"
        return "--detach keeps a run when its terminal or shell ends"

    def _was_a_job(self) -> bool:
        """Whether a scheduler ran the attempt."""
        return "job" in self._case.facts
