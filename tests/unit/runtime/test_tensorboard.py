"""The mirror for TensorBoard, read back with the real TensorBoard: scalars, restarts, settings,
pictures, PR curves."""

import json
import math
import os
import struct
import subprocess
import sys
import time
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.context import RequestContext
from tensorboard.plugins import base_plugin
from tensorboard.plugins.hparams import backend_context
from tensorboard.plugins.hparams import metadata as hparams_metadata
from tensorboard.util import tensor_util

from rampup.core import tfevents as event_format
from rampup.rundir.files import RunDir
from rampup.runtime.telemetry import metrics as metrics_module
from rampup.runtime.telemetry.metrics import EventsWriter, MetricsWriter
from rampup.runtime.telemetry.tensorboard import TensorBoard

with warnings.catch_warnings():
    # of a library that TensorBoard brings along
    warnings.simplefilter("ignore", DeprecationWarning)
    from tensorboard.plugins.pr_curve import pr_curves_plugin

ROOT = Path(__file__).parents[3]


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path / "20261116-045608-mnist-aaaaaa")


class Attempt:
    """Rank 0's writers of one attempt."""

    def __init__(self, run: RunDir, number: int = 1, **settings: Any) -> None:
        run.attempt(number).path.mkdir(parents=True, exist_ok=True)
        self.tensorboard = TensorBoard(run, number, settings)
        self.events = EventsWriter(run.attempt(number), self.tensorboard)
        self.metrics = MetricsWriter(run.attempt(number), self.tensorboard)

    def close(self) -> None:
        self.metrics.close()
        self.events.close()


def loaded(run: RunDir) -> EventAccumulator:
    found = EventAccumulator(
        str(run.tensorboard), size_guidance={"scalars": 0, "tensors": 0, "images": 0}
    )
    found.Reload()
    return found


def points(run: RunDir, tag: str) -> list[tuple[int, float]]:
    return [(point.step, round(point.value, 6)) for point in loaded(run).Scalars(tag)]


class Served:
    """The run as TensorBoard's own plugins see it."""

    def __init__(self, run: RunDir) -> None:
        self.multiplexer = plugin_event_multiplexer.EventMultiplexer(
            tensor_size_guidance={"pr_curves": 0}
        )
        self.multiplexer.AddRunsFromDirectory(str(run.path))
        self.multiplexer.Reload()
        self.provider = data_provider.MultiplexerDataProvider(self.multiplexer, str(run.path))

    def scalars(self, tag: str) -> list[int]:
        return [point.step for point in self.multiplexer.Tensors("tb", tag)]

    def hparams(self, tag: str) -> bytes:
        found: bytes = self.multiplexer.SummaryMetadata("tb", tag).plugin_data.content
        return found


def png(width: int = 3, height: int = 2) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    rows = (b"\x00" + b"\xff\x00\x00" * width) * height
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        event_format.PNG
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def test_every_row_arrives(run: RunDir) -> None:
    attempt = Attempt(run)
    before = time.time()
    for step in range(1, 21):
        attempt.metrics.write(step, train_loss=1 / step, lr=0.1, note="words are no curve")
    attempt.metrics.write(20, epoch=1, val_loss=float("nan"), huge=1e300, count=10**400)
    attempt.close()
    found = loaded(run)
    assert sorted(found.Tags()["scalars"]) == [
        "count",
        "epoch",
        "huge",
        "lr",
        "train_loss",
        "val_loss",
    ]
    assert points(run, "train_loss") == [(step, round(1 / step, 6)) for step in range(1, 21)]
    assert math.isnan(found.Scalars("val_loss")[0].value) and math.isinf(
        found.Scalars("huge")[0].value
    )
    assert before <= found.Scalars("lr")[0].wall_time <= time.time()
    assert os.listdir(run.tensorboard) == ["events.out.tfevents.0000000001"]


def test_the_mean_over_an_epoch_has_a_line_of_its_own(run: RunDir) -> None:
    attempt = Attempt(run)
    for step in (50, 100):
        attempt.metrics.write(step, epoch=1, train_loss=0.5, lr=0.1)
    attempt.metrics.write(100, epoch=1, train_loss=0.9, val_loss=0.7, lr=0.1, samples_s=1e4)
    attempt.close()
    assert points(run, "train_loss") == [(50, 0.5), (100, 0.5)]
    assert points(run, "train_loss_epoch") == [(100, 0.9)] and points(run, "val_loss") == [
        (100, 0.7)
    ]
    assert "lr_epoch" not in loaded(run).Tags()["scalars"]


def test_the_mean_has_its_name_from_the_first_epoch_on_and_after_a_resume(run: RunDir) -> None:
    """Epochs so short that no row came before the first end of one."""
    for number in (1, 2):
        attempt = Attempt(run, number)
        if number == 2:
            attempt.events.write("resumed", step=10)
        attempt.metrics.write(10 * number, epoch=number, train_loss=0.9, samples_s=1e4)
        attempt.metrics.write(10 * number + 5, epoch=number, train_loss=0.5)
        attempt.close()
    assert points(run, "train_loss_epoch") == [(10, 0.9), (20, 0.9)] and points(
        run, "train_loss"
    ) == [(25, 0.5)]


def test_a_loop_that_logs_its_speed_but_has_no_epochs_keeps_its_names(run: RunDir) -> None:
    attempt = Attempt(run)
    for step in (1, 2):
        attempt.metrics.write(step, train_loss=0.5, samples_s=10.0)
    attempt.close()
    assert points(run, "train_loss") == [(1, 0.5), (2, 0.5)]


@pytest.mark.parametrize("resumed", [20, None])
def test_steps_that_are_done_again_are_dropped(run: RunDir, resumed: int | None) -> None:
    """Where the run took up, or anew; the same as `history` tells."""
    first = Attempt(run, 1, lr=0.1)
    for step in (10, 20, 30, 40):
        first.metrics.write(step, loss=1.0)
    first.close()
    second = Attempt(run, 2, lr=0.1)
    if resumed is not None:
        second.events.write("resumed", step=resumed)
    second.metrics.write(30, loss=2.0)
    second.close()
    expected = [(10, 1.0), (20, 1.0), (30, 2.0)] if resumed else [(30, 2.0)]
    assert points(run, "loss") == expected
    assert [(row["step"], row["loss"]) for row in run.history()] == expected
    served = Served(run)
    assert served.scalars("loss") == [step for step, _ in expected]
    assert served.hparams("_hparams_/session_start_info"), "settings survive the restart"


def test_two_programs_of_one_command_are_one_session(run: RunDir) -> None:
    for step in (1, 2):
        program = Attempt(run)
        program.metrics.write(step, loss=float(step))
        program.close()
    assert points(run, "loss") == [(1, 1.0), (2, 2.0)]
    assert Served(run).scalars("loss") == [1, 2]


def test_the_settings_are_hyper_parameters(run: RunDir) -> None:
    settings = {
        "lr": 1e-3,
        "epochs": 3,
        "optimizer": "adam",
        "checkpoint": True,
        "clip": None,
        "betas": [0.9, 0.99],
    }
    attempt = Attempt(run, 1, **settings)
    attempt.metrics.write(1, val_loss=0.5)
    attempt.events.write("end", metrics={}, best=None)
    attempt.close()
    served = Served(run)
    start = hparams_metadata.parse_session_start_info_plugin_data(
        served.hparams("_hparams_/session_start_info")
    )
    values = {
        name: getattr(value, value.WhichOneof("kind")) for name, value in start.hparams.items()
    }
    shown = {
        "lr": 1e-3,
        "epochs": 3,
        "optimizer": "adam",
        "checkpoint": True,
        "betas": "[0.9, 0.99]",
    }
    assert (
        values == shown
        and start.group_name == "aaaaaa"
        and abs(start.start_time_secs - time.time()) < 60
    )
    end = hparams_metadata.parse_session_end_info_plugin_data(
        served.hparams("_hparams_/session_end_info")
    )
    assert end.status == 1 and abs(end.end_time_secs - time.time()) < 60
    # and the tab itself finds settings and metrics
    tab = backend_context.Context(base_plugin.TBContext(data_provider=served.provider))
    metadata = tab.hparams_metadata(RequestContext(), "x")
    experiment = tab.experiment_from_metadata(RequestContext(), "x", True, metadata, [], None)
    assert {info.name for info in experiment.hparam_infos} == set(shown)
    assert [info.name.tag for info in experiment.metric_infos] == ["val_loss"]


def test_a_run_that_breaks_off_is_not_called_a_success(run: RunDir) -> None:
    attempt = Attempt(run, 1, lr=1)
    attempt.metrics.write(1, loss=1.0)
    attempt.close()
    with pytest.raises(KeyError):
        Served(run).hparams("_hparams_/session_end_info")


def test_pictures(run: RunDir) -> None:
    attempt = Attempt(run)
    attempt.tensorboard.image(7, "digits", png(3, 2))
    attempt.close()
    (picture,) = loaded(run).Images("digits")
    assert (picture.step, picture.width, picture.height) == (
        7,
        3,
        2,
    ) and picture.encoded_image_string == png(3, 2)
    (tensor,) = Served(run).multiplexer.Tensors("tb", "digits")
    assert tensor_util.make_ndarray(tensor.tensor_proto).tolist()[:2] == [b"3", b"2"]


def test_pictures_before_the_first_row_stay(run: RunDir) -> None:
    """A short epoch is validated before it has a row; an attempt that begins anew still replaces
    them."""
    for number in (1, 2):
        attempt = Attempt(run, number)
        attempt.tensorboard.text(0, "model", "Linear")
        attempt.tensorboard.image(7, "digits", png(2 + number, 2))
        attempt.metrics.write(7, train_loss=0.5)
        attempt.close()
        assert [(picture.step, picture.width) for picture in loaded(run).Images("digits")] == [
            (7, 2 + number)
        ]


def test_pr_curves(run: RunDir) -> None:
    counts = [[10, 8, 1], [10, 2, 0], [0, 8, 10], [0, 2, 9]]
    attempt = Attempt(run)
    attempt.tensorboard.pr_curve(5, "class 3", counts)
    counts[0][0] = 99  # the loop goes on with its list
    attempt.close()
    plugin = pr_curves_plugin.PrCurvesPlugin(
        base_plugin.TBContext(data_provider=Served(run).provider)
    )
    assert list(plugin.tags_impl(RequestContext(), "x")["tb"]) == ["class 3"]
    (curve,) = plugin.pr_curves_impl(RequestContext(), "x", ["tb"], "class 3")["tb"]
    assert (
        curve["step"] == 5
        and curve["true_positives"] == [10, 8, 1]
        and curve["false_negatives"] == [0, 2, 9]
    )
    assert curve["thresholds"] == [0, 0.5, 1] and curve["precision"] == pytest.approx(
        [0.5, 0.8, 1.0]
    )
    assert curve["recall"] == pytest.approx([1.0, 0.8, 0.1])


def test_histograms(run: RunDir) -> None:
    attempt = Attempt(run)
    attempt.tensorboard.histogram(5, "weights/first", [1, 3, 2], [-1.0, 0.0, 1.0, 2.0], 7.5)
    attempt.close()
    (found,) = loaded(run).Histograms("weights/first")
    value = found.histogram_value
    assert found.step == 5 and (value.min, value.max, value.num, value.sum_squares) == (
        -1,
        2,
        6,
        7.5,
    )
    assert value.bucket == [1, 3, 2] and value.bucket_limit == [0, 1, 2]
    # as the tab of today reads it
    (tensor,) = Served(run).multiplexer.Tensors("tb", "weights/first")
    assert tensor_util.make_ndarray(tensor.tensor_proto)[:, 2].sum() == 6


def test_words(run: RunDir) -> None:
    attempt = Attempt(run)
    attempt.tensorboard.text(3, "classes", "| a | b |")
    attempt.close()
    served = Served(run)
    (tensor,) = served.multiplexer.Tensors("tb", "classes")
    assert (
        tensor.step == 3 and tensor_util.make_ndarray(tensor.tensor_proto).tolist() == b"| a | b |"
    )
    assert served.multiplexer.SummaryMetadata("tb", "classes").plugin_data.plugin_name == "text"


def test_the_graph_of_a_model(run: RunDir) -> None:
    attempt = Attempt(run)
    nodes = [
        event_format.Node("x", "placeholder", []),
        event_format.Node("layers/0", "Linear", ["x"], "Linear(2, 3)"),
    ]
    attempt.tensorboard.graph(nodes)
    attempt.close()
    found = loaded(run).Graph()
    assert [(node.name, node.op, list(node.input)) for node in found.node] == [
        ("x", "placeholder", []),
        ("layers/0", "Linear", ["x"]),
    ]
    assert found.node[1].attr["about"].s == b"Linear(2, 3)"


def test_what_only_the_event_files_have_is_known_from_rows() -> None:
    kept = [
        event_format.image(1.0, 1, "a", png()),
        event_format.pr_curve(1.0, 1, "a", [[1, 1]] * 4),
        event_format.histogram(1.0, 1, "a", [1], [0.0, 1.0], 1.0),
        event_format.markdown(1.0, 1, "a", "b"),
        event_format.graph(1.0, [event_format.Node("a", "b", [])]),
    ]
    again = [
        event_format.scalars(1.0, 1, [("text", 1.0)]),
        event_format.hparams_start(1.0, "text", {"text": "pr_curves"}),
        event_format.hparams_end(1.0),
        event_format.session_start(1.0, 1),
        event_format.version(1.0),
    ]
    for records, expected in ((kept, True), (again, False)):
        for data in records:
            (record,) = event_format.read_records(data)
            assert event_format.is_picture(record) is expected, record


def test_what_makes_no_sense_is_left_out_and_said_once_for_each_name(
    run: RunDir, capsys: pytest.CaptureFixture[str]
) -> None:
    attempt = Attempt(run)
    for step in (1, 2):
        attempt.tensorboard.image(step, "photo", b"JFIF")
    attempt.tensorboard.image(1, 7, png())  # type: ignore[arg-type]
    attempt.tensorboard.image(3, "huge", png() + bytes(1_000_000))
    attempt.tensorboard.pr_curve(1, "short", [[1, 2], [1]])
    attempt.tensorboard.pr_curve(4, "words", [["many"], None])  # type: ignore[list-item]
    attempt.metrics.write("first", loss=1.0)  # type: ignore[arg-type]
    attempt.metrics.write(2, loss=0.5)
    attempt.close()
    assert points(run, "loss") == [(2, 0.5)] and loaded(run).Tags()["images"] == []
    said = capsys.readouterr().out.splitlines()
    begin = "warning: left out of the TensorBoard events: "
    assert all(line.startswith(begin) for line in said)
    assert [line.removeprefix(begin).split(": ")[0] for line in said] == [
        "words at step 4",
        "photo at step 1",
        "7 at step 1",
        "huge at step 3",
        "short at step 1",
    ]
    assert "1,000,000 are taken" in said[3]


def test_it_is_live(
    run: RunDir, eventually: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_module, "FLUSH_AFTER_S", 0.05)
    attempt = Attempt(run)
    attempt.metrics.write(1, loss=1.0)
    eventually(
        lambda: run.tensorboard.exists() and loaded(run).Tags()["scalars"], what="the first row"
    )
    assert points(run, "loss") == [(1, 1.0)]
    attempt.metrics.write(2, loss=1.0)
    time.sleep(0.3)
    assert points(run, "loss") == [(1, 1.0)], "later ones are collected for ten seconds"
    attempt.close()
    assert len(points(run, "loss")) == 2


def test_very_many_rows_do_not_wait_for_the_clock(
    run: RunDir, eventually: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_module, "FLUSH_AFTER_S", 0.05)
    attempt = Attempt(run)
    attempt.metrics.write(0, loss=1.0)
    eventually(lambda: run.tensorboard.exists() and loaded(run).Tags()["scalars"])
    for step in range(1, 6001):
        attempt.metrics.write(step, loss=1.0)
    eventually(lambda: len(points(run, "loss")) > 5000, seconds=5)
    attempt.close()


@pytest.mark.parametrize("trouble", ["not a directory", "no room"])
def test_a_failing_mirror_is_said_once_and_harms_nothing(
    run: RunDir, trouble: str, capsys: pytest.CaptureFixture[str]
) -> None:
    attempt = Attempt(run)
    if trouble == "not a directory":
        run.tensorboard.touch()
    else:
        run.tensorboard.mkdir()
        run.tensorboard_file(1).symlink_to("/dev/full")
    for step in range(1, 4):
        attempt.metrics.write(step, loss=1.0)
        attempt.tensorboard._flush()
    attempt.close()
    assert len(run.attempt(1).metrics()) == 3
    assert capsys.readouterr().out.count("warning: no more TensorBoard events") == 1


def test_the_hot_path_only_appends(run: RunDir) -> None:
    attempt = Attempt(run)
    row = {"step": 1, "loss": 0.5, "t": 1.0}
    began = time.thread_time()
    for _ in range(100_000):
        attempt.tensorboard.row(row)
    assert (time.thread_time() - began) / 100_000 < 5e-6
    attempt.tensorboard._waiting.clear()
    attempt.close()


def test_numbers_of_the_format() -> None:
    assert (
        event_format.masked_crc(b"123456789")
        == ((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) & 0xFFFFFFFF
    )
    assert (
        event_format.varint(300) == b"\xac\x02" and event_format.varint(-1) == b"\xff" * 9 + b"\x01"
    )
    data = b"".join(event_format.scalars(1.0, step, [("a", 1.0)]) for step in range(1, 4))
    assert len(list(event_format.read_records(data))) == 3
    for cut in range(len(data)):
        assert len(list(event_format.read_records(data[:cut]))) == cut * 3 // len(data)
    damaged = bytearray(data)
    damaged[len(data) // 2] ^= 1
    assert len(list(event_format.read_records(bytes(damaged)))) == 1


JOB = """
import sys
import rampup
with rampup.init(lr=0.1) as run:
    run.log(step=1, loss=0.5)
    run.tensorboard.image(1, "none", b"")
heavy = {"tensorflow", "tensorboard", "torch", "numpy", "google"} & {name.partition(".")[0] for name in sys.modules}
assert not heavy, heavy
"""


def test_a_job_needs_neither_tensorflow_nor_tensorboard(run: RunDir, tmp_path: Path) -> None:
    run.attempt(1).path.mkdir(parents=True)
    run.config_file.write_text(json.dumps({"kind": "command", "train": {"momentum": 0.9}}))
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "RAMPUP_RUN_DIR": str(run.path),
        "RAMPUP_ATTEMPT": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", JOB], env=env, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert points(run, "loss") == [(1, 0.5)]
    start = hparams_metadata.parse_session_start_info_plugin_data(
        Served(run).hparams("_hparams_/session_start_info")
    )
    assert set(start.hparams) == {"lr", "momentum"}
