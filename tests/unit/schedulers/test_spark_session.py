"""The session that rampup makes when there is none: who may talk to it, and where it listens."""

import os
import sys
import types
from typing import Any

import pytest

from rampup.schedulers.spark import session as sessions


class Builder:
    """Takes what a SparkSession is built with."""

    def __init__(self) -> None:
        self.conf: dict[str, str] = {}

    def master(self, text: str) -> "Builder":
        self.conf["master"] = text
        return self

    def appName(self, text: str) -> "Builder":  # noqa: N802
        return self

    def config(self, key: str, value: str) -> "Builder":
        self.conf[key] = value
        return self

    def getOrCreate(self) -> dict[str, str]:  # noqa: N802
        return self.conf


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(os, "environ", {"PATH": os.environ["PATH"]})
    sql: Any = types.ModuleType("pyspark.sql")
    sql.SparkSession = types.SimpleNamespace(builder=Builder())
    monkeypatch.setitem(sys.modules, "pyspark", types.ModuleType("pyspark"))
    monkeypatch.setitem(sys.modules, "pyspark.sql", sql)
    return lambda master, **settings: sessions.open_session(master, settings, "a run")


def test_a_session_on_this_machine_is_nobody_elses(made: Any) -> None:
    conf = made("local-cluster[2,1,512]")
    assert (conf["spark.authenticate"], conf["spark.ui.enabled"]) == ("true", "false")
    assert len(conf["spark.authenticate.secret"]) == 64
    assert conf["spark.driver.host"] == conf["spark.driver.bindAddress"] == "127.0.0.1"
    assert os.environ["SPARK_LOCAL_IP"] == "127.0.0.1", "else executors bind to the machine's own"
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    secret = conf["spark.authenticate.secret"]
    assert made("local[2]")["spark.authenticate.secret"] != secret, "a new one each time"


def test_a_session_on_a_cluster_is_authenticated_with_the_clusters_secret(made: Any) -> None:
    conf = made("spark://head:7077", **{"spark.authenticate.secret": "ours"})
    assert (conf["spark.authenticate"], conf["spark.ui.enabled"]) == ("true", "false")
    assert conf["spark.authenticate.secret"] == "ours"
    assert "spark.driver.host" not in conf and "SPARK_LOCAL_IP" not in os.environ


def test_the_session_of_another_thread_is_taken_where_this_one_has_none(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    session: Any = sys.modules["pyspark.sql"].SparkSession
    session.getActiveSession = lambda: None
    session._instantiatedSession = "of the notebook"
    assert sessions.find_active() == "of the notebook"
    session.getActiveSession = lambda: "of this thread"
    assert sessions.find_active() == "of this thread"
