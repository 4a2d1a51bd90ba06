"""The Spark session that runs the ranks: the caller's own, or one that we make.

pyspark is imported here and in driver.py, and only for a run that starts.
"""

import os
import shutil
import sys
from collections.abc import Mapping
from typing import Any

from rampup.errors import Refused

LOOPBACK = "127.0.0.1"


def find_active() -> Any:
    """Return the session of this process, if there is one; pyspark is not imported for that.

    Spark's "active session" is one of the calling thread; where that has none, it is the one that
    another thread has made.
    """
    sql = sys.modules.get("pyspark.sql")
    if sql is None:
        return None
    active = sql.SparkSession.getActiveSession()
    return active or getattr(sql.SparkSession, "_instantiatedSession", None)


def find_context(session: Any) -> Any:
    """Return the context of a session. A session of Spark Connect has none."""
    try:
        return session.sparkContext
    except Exception:
        raise Refused(
            "this Spark session has no sparkContext: it is one of Spark Connect",
            "start the script on the cluster itself, with a classic session",
        ) from None


def has_java() -> bool:
    home = os.environ.get("JAVA_HOME")
    return bool(shutil.which("java") or (home and os.access(f"{home}/bin/java", os.X_OK)))


def open_session(master: str, settings: Mapping[str, str], name: str) -> Any:
    """Make a session with authentication and without the web page; `settings` win."""
    from pyspark.sql import SparkSession

    conf = {
        "spark.ui.enabled": "false",
        "spark.authenticate": "true",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    if master.startswith("local"):
        # a cluster on this machine is nobody else's: it listens nowhere else, and its secret is ours
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
        conf |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
        import secrets  # slow to import, and `list` imports every scheduler

        conf["spark.authenticate.secret"] = secrets.token_hex(32)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in {**conf, **settings}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def count_slots(context: Any) -> int | None:
    """Return how many tasks the executors of now can run at once; None where Spark does not say."""
    try:
        java = context._jsc.sc()
        profile = java.resourceProfileManager().defaultResourceProfile()
        return int(java.maxNumConcurrentTasks(profile))
    except Exception:  # an internal of Spark: without it a run with too many ranks waits longer
        return None


def find_task_errors(context: Any, stage: int, attempt: int) -> dict[int, str]:
    """Return why tasks of a stage failed, by rank; empty where Spark does not say."""
    found: dict[int, str] = {}
    try:
        tasks = context._jsc.sc().statusStore().taskList(stage, attempt, 10_000)
        for index in range(tasks.size()):
            task = tasks.apply(index)
            if task.errorMessage().isDefined():
                found[int(task.index())] = str(task.errorMessage().get())
    except Exception:  # an internal of Spark: the cause is then what its exception says
        return found
    return found
