"""Runs into an MLflow server, from the login node: settings, metrics with their history, how it
ended.

A run is found again by its tag `rampup.run_id`, and a point that the server has is not sent again,
so an export can be repeated while a run continues. A `Tracker` of `rampup export`; it talks to the
server that is named, and to nobody else.
"""

import math
import os
import posixpath
import re
import shlex
from collections.abc import Container, Iterable, Sequence
from typing import Any

from rampup.core.metrics import get_step, name_numbers
from rampup.errors import RampupError, UsageError
from rampup.export.tracker import Sent, Source, Target, parse_time

PACKAGES = ("mlflow",)
OPTIONS = ("tracking_uri", "project")
CHANGED = "known, added to"
PROJECT = "rampup"
TAG = "rampup.run_id"
FOREIGN = re.compile(r"[^\w\-. :/]")
LONGEST_NAME, LONGEST_VALUE = 250, 500
METRICS_AT_ONCE, PARAMS_AT_ONCE = 1000, 100
STATUS = {
    "completed": "FINISHED",
    "running": "RUNNING",
    "pending": "SCHEDULED",
    "cancelled": "KILLED",
}
QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ASYNC_LOGGING": "false",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
}
Point = tuple[str, int, int, float | str]
"""Name, step, milliseconds, value: what tells two points apart."""


def destination(target: Target) -> str:
    uri = target.tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")
    if not uri:
        raise UsageError("which MLflow server?", "--tracking-uri URI, or set MLFLOW_TRACKING_URI")
    return uri


def next_command(where: str, sent: Sequence[Sent]) -> str:
    if where.startswith(("http://", "https://", "databricks")):
        return f"look at {where}"
    return f"mlflow ui --backend-store-uri {shlex.quote(where)}"


def export(sources: Sequence[Source], target: Target) -> list[Sent]:
    uri = destination(target)
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    try:
        client = MlflowClient(tracking_uri=uri, registry_uri=uri)
        experiment = find_or_create_experiment(client, target.project or PROJECT)
        return [send(client, experiment, source) for source in sources]
    except MlflowException as error:
        raise RampupError(*describe_error(uri, str(error))) from error


def describe_error(uri: str, words: str) -> tuple[str, str]:
    """Turn MLflow's error into a message and a hint."""
    if "MLFLOW_ALLOW_FILE_STORE" in words:  # what it advises is long, and not about rampup
        hint = "--tracking-uri sqlite:///mlflow.db for a file, or the http address of a server"
        return f"MLflow at {uri}: it no longer takes folders of plain files", hint
    return (
        f"MLflow at {uri}: {words.partition(chr(10))[0][:400]}",
        "check that the server runs and that you may write",
    )


def find_or_create_experiment(client: Any, name: str) -> str:
    found = client.get_experiment_by_name(name)
    return str(found.experiment_id if found is not None else client.create_experiment(name))


def send(client: Any, experiment: str, source: Source) -> Sent:
    known = client.search_runs(
        [experiment], filter_string=f"tags.`{TAG}` = '{source.id}'", max_results=1
    )
    run_id = known[0].info.run_id if known else create_run(client, experiment, source)
    log_params(client, run_id, source, known[0].data.params if known else ())
    wanted = metric_points(source)
    there = points_on_server(client, run_id, {name for name, *_ in wanted}) if known else set()
    fresh = [point for point in wanted if point not in there]
    log_metrics(client, run_id, fresh)
    client.set_tag(run_id, "rampup.state", source.state)
    set_status(client, run_id, source)
    stale = len(there.difference(wanted))
    note = ""
    if stale:
        done_again = f"{stale} points of steps that were done again since"
        note = f"MLflow has {done_again}, and can't remove points"
    return Sent(source.id, run_id, len(source.rows), len(fresh), not known, note)


def create_run(client: Any, experiment: str, source: Source) -> str:
    tags = {
        TAG: source.id,
        "rampup.dir": str(source.run.path),
        "mlflow.runName": f"{source.name}-{source.id}",
    }
    return str(
        client.create_run(experiment, start_time=int(source.created * 1000), tags=tags).info.run_id
    )


def log_params(client: Any, run_id: str, source: Source, there: Container[str]) -> None:
    """Send those that the server does not have: an earlier export may have been interrupted before
    it sent them."""
    from mlflow.entities import Param

    names = safe_names(source.settings)
    missing = [
        (names[name], str(value))
        for name, value in source.settings.items()
        if names[name] not in there
    ]
    params = [Param(name, value[:LONGEST_VALUE]) for name, value in missing]
    for begin in range(0, len(params), PARAMS_AT_ONCE):
        client.log_batch(run_id, params=params[begin : begin + PARAMS_AT_ONCE])


def set_status(client: Any, run_id: str, source: Source) -> None:
    status = STATUS.get(source.state, "FAILED")
    if source.finished:
        ended = None if source.ended is None else int(source.ended * 1000)
        client.set_terminated(run_id, status=status, end_time=ended)
    else:
        client.update_run(run_id, status=status)


# points -------------------------------------------------------------------------------------------


def metric_points(source: Source) -> list[Point]:
    """Return each point once, in their order."""
    found: list[Point] = []
    for row in source.rows:
        step = get_step(row)
        if step is not None:
            milliseconds = int((parse_time(row.get("t")) or source.created) * 1000)
            found += [
                (name, step, milliseconds, comparable(value)) for name, value in name_numbers(row)
            ]
    names = safe_names(name for name, *_ in found)
    return list(dict.fromkeys((names[name], step, t, value) for name, step, t, value in found))


def points_on_server(client: Any, run_id: str, names: Iterable[str]) -> set[Point]:
    return {
        (name, metric.step, metric.timestamp, comparable(metric.value))
        for name in names
        for metric in client.get_metric_history(run_id, name)
    }


def comparable(value: float) -> float | str:
    """Make equal values compare equal: NaN is not equal to itself."""
    return "NaN" if math.isnan(value) else value


def log_metrics(client: Any, run_id: str, points: Sequence[Point]) -> None:
    from mlflow.entities import Metric

    for begin in range(0, len(points), METRICS_AT_ONCE):
        batch = points[begin : begin + METRICS_AT_ONCE]
        client.log_batch(
            run_id, [Metric(name, float(value), t, step) for name, step, t, value in batch]
        )


def safe_names(names: Iterable[str]) -> dict[str, str]:
    """Return names that MLflow takes: letters, digits and some signs, a slash only between two
    parts."""
    found: dict[str, str] = {}
    for name in dict.fromkeys(names):
        safe = FOREIGN.sub("_", name)[: LONGEST_NAME - 4]
        if posixpath.normpath(safe) != safe or safe.startswith(("/", "..")) or safe in ("", "."):
            safe = safe.replace("/", "_").replace(".", "_") or "_"
        base, count = safe, 1
        while safe in found.values():
            count += 1
            safe = f"{base}_{count}"
        found[name] = safe
    return found
