"""`rampup doctor`: what this machine has, what is missing for training, and what to do about it."""

import click

from rampup.cli import output
from rampup.cli.options import complete_cluster, json_option
from rampup.config.clusters import LOCAL, load
from rampup.core.finding import Finding
from rampup.diagnose.doctor import doctor
from rampup.rundir import find as runs

COLOURS = {"ok": output.GREEN, "note": output.YELLOW, "problem": output.RED}
WIDTH = len("problem") + 2


@click.command()
@click.option(
    "--on",
    "cluster",
    default="local",
    metavar="CLUSTER",
    shell_complete=complete_cluster,
    help="The cluster to check.  [default: local]",
)
@json_option
def command(cluster: str, as_json: bool) -> int:
    """Check this machine or a cluster: what it has and what is missing."""
    findings = doctor(cluster, runs.default_root(load(cluster)))
    problems = [finding for finding in findings if finding.level == "problem"]
    if as_json:
        output.emit_json([finding._asdict() for finding in findings])
    else:
        for finding in findings:
            show(finding)
        output.next_step(next_command(findings, cluster))
    return 1 if problems else 0


def show(finding: Finding) -> None:
    mark = output.paint(finding.level, COLOURS[finding.level]) + " " * (WIDTH - len(finding.level))
    output.write_whole(mark + finding.about)
    if finding.cause:
        output.write(" " * WIDTH + finding.cause)
    if finding.remedy:  # mostly a command: people copy it
        output.write_whole(f"{' ' * WIDTH}try: {finding.remedy}")


def next_command(findings: list[Finding], cluster: str) -> str:
    """What hinders most; when nothing does, the first training."""
    first = [finding for finding in findings if finding.level == "problem"]
    missing = [
        finding
        for finding in findings
        if finding.level == "note" and finding.id.startswith("framework-")
    ]
    hindering = first + missing
    first_training = (
        "rampup run digits" if cluster == LOCAL else f"rampup run digits --on {cluster}"
    )
    return hindering[0].remedy if hindering else first_training
