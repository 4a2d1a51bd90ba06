"""What the control side changes among the checkpoints of a run: `rampup clean`, and `rampup resume
--before`.

Slurm may start the next attempt of a run at any moment and knows no lock of ours. So nothing is
removed but what was listed before the newest checkpoint was verified, never a checkpoint of a later
step than that one, and each time only after another look at the attempts. Only names that rampup
gives are touched, and a checkpoint that can't be read is never a reason to remove anything.
"""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from rampup.errors import RampupError, Refused
from rampup.rundir import checkpoints, claims
from rampup.rundir.checkpoints import MISSING, Checkpoint, Damaged, Entry, Kind, Unreadable
from rampup.rundir.files import ATTEMPT_NAME, RunDir
from rampup.runs.resume import may_be_submitted, resume_alone
from rampup.runs.state import state_for_sure

ANSWER_FRESH_S = 2.0
"""After a quick verification the scheduler need not be asked again."""
Identity = tuple[int, int, int]


class Listing(Struct, frozen=True):
    """What lay among the checkpoints at one moment, and which attempts there were."""

    folder: Path
    """Where the checkpoints really are: nobody can exchange a link behind our back."""
    attempts: tuple[int, ...]
    entries: list[Entry]
    """What is ours, the oldest step first."""
    identities: dict[str, Identity]
    foreign: list[str]

    @property
    def newest_attempt(self) -> int:
        return max(self.attempts, default=0)


class Cleaning(Struct, frozen=True):
    """What `clean` does with a run, or did."""

    removed: list[Entry]
    aside: list[Entry]
    """What is damaged and is set aside now; at most one."""
    kept: list[Entry]
    damaged: list[Entry]
    """What is damaged and stays where it is."""
    freed_bytes: int
    left: list[str]
    """The names of all else: written by the newest attempt, skipped by a resume, or not ours."""


# clean --------------------------------------------------------------------------------------------


def clean(run: RunDir, everything: bool, dry_run: bool) -> Cleaning:
    """Remove what a run that has ended no longer needs, or all of it; nobody can resume it
    meanwhile."""
    with contextlib.nullcontext() if dry_run else resume_alone(run):
        refuse_unless_ended(run)
        listing = list_checkpoints(run)
        plan = plan_to_remove_all(listing) if everything else plan_cleaning(run, listing)
        if not dry_run:
            refuse_unless_ended(run, ANSWER_FRESH_S)
            carry_out(run, listing, plan)
        return plan


def refuse_unless_ended(run: RunDir, fresh_s: float = 0.0) -> None:
    state = state_for_sure(run, fresh_s)
    if not state.ended:
        raise Refused(
            f"run {run.id} is {state.name}: its checkpoints are left alone",
            f"rampup cancel {run.id}",
        )


def plan_to_remove_all(listing: Listing) -> Cleaning:
    return make_plan(listing, listing.entries, [], [], [])


def plan_cleaning(run: RunDir, listing: Listing) -> Cleaning:
    """Keep the newest sound checkpoint and the best; when none is sound keep all, because something
    of them may be saved."""
    copies = checkpoints.find_copies(listing.entries)
    set_aside_before = [each for each in listing.entries if each.kind is Kind.DAMAGED]
    newest, damaged = verify_newest(run, copies)
    if newest is None:
        leftovers = find_leftovers(listing, copies, -1)
        return make_plan(listing, leftovers, [], [*copies.values()], damaged + set_aside_before)
    if newest.manifest["attempt"] > listing.newest_attempt:
        raise begun_meanwhile(run, newest.manifest["attempt"])
    kept = find_needed(newest, copies)
    older = [each for each in copies.values() if each.step < newest.step]
    removed = [each for each in older if each not in kept]
    removed += find_leftovers(listing, copies, newest.step)
    if not damaged or checkpoints.find_later_damaged(damaged[0], set_aside_before):
        return make_plan(listing, removed, [], kept, damaged + set_aside_before)
    return make_plan(listing, removed + set_aside_before, damaged[:1], kept, damaged[1:])


def make_plan(
    listing: Listing,
    removed: list[Entry],
    aside: list[Entry],
    kept: list[Entry],
    damaged: list[Entry],
) -> Cleaning:
    known = {*removed, *aside, *kept, *damaged}
    return Cleaning(
        removed=sorted(removed, key=listing.entries.index),
        aside=aside,
        kept=kept,
        damaged=damaged,
        freed_bytes=sum(measure(entry.path) for entry in removed),
        left=[each.name for each in listing.entries if each not in known] + listing.foreign,
    )


def verify_newest(run: RunDir, copies: dict[int, Entry]) -> tuple[Checkpoint | None, list[Entry]]:
    """Return the newest sound checkpoint, and the damaged ones of later steps."""
    damaged: list[Entry] = []
    for step, entry in copies.items():
        try:
            return checkpoints.retry(checkpoints.verify_copy, entry.path, step), damaged
        except Damaged:
            damaged.append(entry)
        except Unreadable as error:
            raise Refused(
                f"{error.message}; nothing was removed",
                f"try again when it can be read, or remove all: rampup clean {run.id} --all",
            ) from None
    return None, damaged


def find_needed(newest: Checkpoint, copies: dict[int, Entry]) -> list[Entry]:
    """Return the newest sound checkpoint and the best one, by what the newest knows of it."""
    steps = [newest.step]
    best = newest.meta.get("best")
    if best and best["step"] < newest.step:
        steps.append(best["step"])
    return [copies[step] for step in steps if step in copies]


def find_leftovers(listing: Listing, copies: dict[int, Entry], newest: int) -> list[Entry]:
    """Return what attempts have left that were killed while they wrote, replaced or removed a
    checkpoint. The newest attempt may still be writing, on a node that the scheduler has lost."""
    found = []
    for entry in listing.entries:
        is_older = entry.kind is Kind.UNFINISHED and entry.attempt < listing.newest_attempt
        is_known = entry.kind is Kind.REPLACED and entry.step <= newest
        is_second_copy = is_known and copies[entry.step] != entry
        if entry.kind is Kind.TRASH or is_older or is_second_copy:
            found.append(entry)
    return found


def carry_out(run: RunDir, listing: Listing, plan: Cleaning) -> None:
    """Do what was planned, the oldest first; stop when anything has changed since."""
    for entry in plan.removed:
        remove(run, listing, entry)
    for entry in plan.aside:
        move(run, listing, entry, entry.path.with_name(f"{checkpoints.DAMAGED}{entry.name}"))


def remove(run: RunDir, listing: Listing, entry: Entry) -> None:
    trash = checkpoints.name_trash(entry.path)
    if not move(run, listing, entry, trash):
        return
    try:
        checkpoints.delete(trash)
    except OSError as error:
        raise explain_failure(run, entry, error) from None


def move(run: RunDir, listing: Listing, entry: Entry, target: Path) -> bool:
    """Rename what was listed, if it is still the same and no attempt has begun; False when it is
    gone already."""
    attempts = list_attempts(run)
    if attempts != listing.attempts:
        raise begun_meanwhile(run, max(attempts, default=0))
    try:
        if identify(entry.path) != listing.identities[entry.name]:
            raise changed_meanwhile(run, entry)
        entry.path.rename(target)
        if identify(target)[:2] != listing.identities[entry.name][:2]:
            target.rename(entry.path)
            raise changed_meanwhile(run, entry)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise explain_failure(run, entry, error) from None
    return True


# what is there ------------------------------------------------------------------------------------


def list_checkpoints(run: RunDir) -> Listing:
    """List the checkpoints once, between two looks at the attempts."""
    attempts = list_attempts(run)
    folder = find_folder(run)
    entries, identities, foreign = [], {}, []
    for name in checkpoints.list_names(run):
        entry = checkpoints.parse_name(folder / name)
        if entry is None:
            foreign.append(name)
            continue
        try:
            identities[name] = identify(entry.path)
        except OSError as error:
            if error.errno in MISSING:
                continue
            raise Unreadable(entry.path, error.strerror) from None
        entries.append(entry)
    if list_attempts(run) != attempts:
        raise begun_meanwhile(run, max(list_attempts(run), default=0))
    entries.sort(key=lambda entry: (entry.step, entry.name))
    return Listing(folder, attempts, entries, identities, sorted(foreign))


def find_folder(run: RunDir) -> Path:
    """Return where the checkpoints are. A link is followed only into a folder that can't be anything
    but the checkpoints of this run."""
    folder = run.checkpoints.resolve()
    if not run.checkpoints.is_symlink() or not folder.is_dir():
        return folder
    names = checkpoints.list_names(run)
    is_ours = all(checkpoints.parse_name(folder / name) for name in names)
    same_owner = folder.stat().st_uid == run.path.stat().st_uid
    if is_ours and same_owner and not RunDir(folder.parent).run_file.exists():
        return folder
    raise Refused(
        f"{run.checkpoints} is a link to {folder}, which is not only this run's: nothing was removed",
        "remove there by hand what you no longer need",
    )


def list_attempts(run: RunDir) -> tuple[int, ...]:
    """Return the numbers of the attempts. Unlike RunDir.attempt_numbers this fails when they can't
    be listed: a run without attempts would look the same."""
    try:
        names = os.listdir(run.path / "attempts")
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise Unreadable(run.path / "attempts", error.strerror) from None
    return tuple(sorted(int(name) for name in names if ATTEMPT_NAME.fullmatch(name)))


def identify(path: Path) -> Identity:
    """Return what tells a checkpoint from another one that takes its name later."""
    found = path.lstat()
    return found.st_dev, found.st_ino, found.st_mtime_ns


def measure(path: Path) -> int:
    """Return the bytes of a folder or a file; what goes away meanwhile does not count."""
    files = [Path(root, name) for root, _, names in os.walk(path) for name in names]
    if path.is_symlink() or not path.is_dir():
        files = [path]
    total = 0
    for file in files:
        with contextlib.suppress(OSError):
            total += file.lstat().st_size
    return total


# errors -------------------------------------------------------------------------------------------


def begun_meanwhile(run: RunDir, attempt: int) -> Refused:
    return Refused(
        f"attempt {attempt} of run {run.id} has begun meanwhile: its checkpoints are left alone",
        f"clean it when it has ended: rampup wait {run.id}",
    )


def changed_meanwhile(run: RunDir, entry: Entry) -> Refused:
    return Refused(
        f"{entry.path} was changed meanwhile by another process: it is left alone",
        f"see what is there: rampup show {run.id} --checkpoints",
    )


def explain_failure(run: RunDir, entry: Entry, error: OSError) -> RampupError:
    hint = f"try again: rampup clean {run.id}"
    if error.errno in (errno.EACCES, errno.EPERM):
        hint = "only the owner of a run can clean it"
    return RampupError(f"can't remove {entry.path}: {error.strerror}", hint)


# resume --before ----------------------------------------------------------------------------------


@contextlib.contextmanager
def skip_from(run: RunDir, step: int | None) -> Iterator[list[str]]:
    """Set aside the checkpoints of this step and of later ones, so that the next attempt continues
    from the one before. They come back if the run was not started. Yields their names."""
    if step is None:
        yield []
        return
    number, _ = claims.newest_claim(run)
    moved: list[tuple[Path, Path]] = []
    try:
        for entry in find_skipped(run, step):
            aside = entry.path.with_name(f"{checkpoints.SKIPPED}{entry.name}")
            set_aside(entry.path, aside)
            moved.append((entry.path, aside))
        yield [aside.name for _, aside in moved]
    except BaseException:
        if not may_be_submitted(run, number):
            for path, aside in moved:
                aside.rename(path)
        raise


def find_skipped(run: RunDir, step: int) -> list[Entry]:
    """Return the checkpoints from a step on. Refuses when there is none before it."""
    entries = checkpoints.list_entries(run)
    if not any(each < step for each in checkpoints.find_copies(entries)):
        raise Refused(
            f"run {run.id} has no checkpoint before step {step}",
            f"rampup show {run.id} --checkpoints",
        )
    found = [each for each in entries if each.kind in (Kind.STEP, Kind.REPLACED)]
    return [each for each in found if each.step >= step]


def set_aside(path: Path, aside: Path) -> None:
    try:
        if os.path.lexists(aside):
            raise Refused(f"{aside} is there already", f"if it is not needed: rm -r {aside}")
        path.rename(aside)
    except OSError as error:
        raise RampupError(
            f"can't rename {path}: {error.strerror}", "only the owner of a run can resume it"
        ) from None
