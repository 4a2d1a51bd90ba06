"""`rampup sweep --dry-run`: the points, what would become of each, and the script of the first job.
Changes nothing."""

from collections.abc import Sequence

from rampup.cli import output
from rampup.runs.plan import make_plan
from rampup.study.grid import text_of
from rampup.study.launch import Way
from rampup.study.members import Member, Study

WORDS = {
    "done": "done",
    "goes on": "goes on",
    "again": "would be started again",
    "new": "would be started",
}


def show_plan(study: Study, members: Sequence[Member], way: Way | None, as_json: bool) -> int:
    """`way` is None where no scheduler is asked."""
    todo = [member for member in members if member.todo in ("new", "again")]
    scripts = scripts_of(study, todo, way) if way else []
    if as_json:
        rows = [
            {
                "point": member.point.values,
                "run": member.run.id if member.run else None,
                "todo": member.todo,
            }
            for member in members
        ]
        output.emit_json(
            {"study": study.name, "root": str(study.root), "runs": rows, "scripts": scripts}
        )
        return 0
    show_points(members)
    if scripts:
        first = make_plan(todo[0].point.spec, study.root / f"TIME-{study.name}-ID")
        print(f"\n{scripts[0]}\n{first.script}")
        output.say(
            f"{output.count(len(scripts), 'call')} of sbatch; shown: the first, and job.sh of its first run"
        )
    output.next_step("the same command without --dry-run")
    return 0


def scripts_of(study: Study, todo: Sequence[Member], way: Way) -> list[str]:
    folder, name = study.folder / f"{way.kind}-N", f"{study.name}-ID"
    return [way.script(study, folder, name, batch) for batch in way.batches(todo, study.root)]


def show_points(members: Sequence[Member]) -> None:
    keys = list(dict.fromkeys(key for member in members for key in member.point.values))
    rows = [
        (
            *(text_of(member.point.values.get(key)) for key in keys),
            member.run.id if member.run else "-",
            WORDS[member.todo],
        )
        for member in members
    ]
    output.table((*keys, "run", ""), rows)
