"""What the rules of diagnose/advice.py look at, taken from the story of one run. Pure: nothing is
read here."""

from rampup.core.units import parse_memory_mb
from rampup.diagnose.advice import Facts
from rampup.report.story import Story, finite, table


def facts_of(story: Story) -> Facts:
    """What the rules of advice.py look at."""
    ranks, nodes, threads = (
        int(finite(found) or 0)
        for found in (
            story.attempt.get("world_size"),
            story.resources.get("nodes"),
            story.start.get("threads"),
        )
    )
    used, limit = memory_of(story)
    return Facts(
        wall_s=story.phases.get("wall", story.wall_s or 0.0),
        phases=uninterrupted(story),
        train=story.train,
        resources=story.resources,
        ranks=max(1, ranks),
        nodes=max(1, nodes),
        threads=threads or None,
        device=str(story.start.get("device", "cpu")),
        loader=story.loader,
        cpus=cpus_of(story),
        cpu_percent=busy_of(story),
        mem_used_mb=used,
        mem_limit_mb=limit,
        undefined=story.undefined,
        train_losses=tuple(at_places(story, "train_loss")),
        val_losses=tuple(y for _, y in points_of(story, "val_loss")),
    )


def uninterrupted(story: Story) -> dict[str, float]:
    """Starting several times is no fault of the settings: one start counts."""
    start = story.phases.get("start", 0.0) / max(1, len(story.tries))
    return {name: start if name == "start" else seconds for name, seconds in story.phases.items()}


def at_places(story: Story, name: str) -> list[float]:
    """The values of a curve where val_loss was measured: the last one up to there."""
    points, places = points_of(story, name), points_of(story, "val_loss")
    found, at = [], 0
    for place, _ in places if points else []:
        while at + 1 < len(points) and points[at + 1][0] <= place:
            at += 1
        found.append(points[at][1])
    return found


def points_of(story: Story, name: str) -> list[tuple[float, float]]:
    return story.curves[name].points() if name in story.curves else []


def samples(story: Story, name: str) -> list[float]:
    rows = (row for parts in story.system.values() for part in parts for row in part)
    return [value for row in rows if (value := finite(row.get(name))) is not None]


def cpus_of(story: Story) -> int | None:
    """Of a node, as its samples say; env.json tells of the machine where the run was submitted."""
    local = table(story.config.get("cluster")).get("scheduler", "local") == "local"
    here = finite(story.env.get("cpus")) if local else None
    return int(min(samples(story, "cpus"), default=here or 0)) or None


def busy_of(story: Story) -> float | None:
    found = samples(story, "cpu_percent")
    return sum(found) / len(found) if found else None


def memory_of(story: Story) -> tuple[float | None, float | None]:
    """The most that a node used, against what was asked for; without a request, against what it
    has."""
    asked = parse_memory_mb(str(story.resources.get("mem") or ""))
    if asked:
        return max(samples(story, "rss_mb"), default=None), asked
    return max(samples(story, "mem_used_mb"), default=None), min(
        samples(story, "mem_total_mb"), default=None
    )
