"""DeepCam's sets: made-up weather, the real layout, and stats.h5 of what a user has."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from numpy.typing import NDArray

from rampup.datasets import fetch, making, sets
from rampup.datasets.deepcam import generate, stats, weather
from rampup.datasets.deepcam.files import (
    STATISTICS,
    VARIABLES,
    read_deepcam,
    read_stats,
    write_sample,
    write_stats,
)
from rampup.datasets.deepcam.weather import CYCLONE, RIVER, SCALES, Canvas, Sample, make_sample
from rampup.errors import RampupError, Refused

HEIGHT, WIDTH, SAMPLES = 96, 144, 120


@pytest.fixture(scope="module")
def samples() -> list[Sample]:
    """The first ones of the demonstration set."""
    return [make_sample(generate.SEED, index, HEIGHT, WIDTH) for index in range(SAMPLES)]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("deepcam") / "set"
    generate.make_set(folder, 6, 2, 24, 36, processes=1)
    return folder


def score_constant(labels: NDArray[np.uint8]) -> float:
    """Return the IoU of saying background everywhere: absent classes count 1."""
    absent = [not (labels == kind).any() for kind in (CYCLONE, RIVER)]
    return float((labels == 0).mean() + sum(absent)) / 3


# the weather --------------------------------------------------------------------------------------


def test_storms_are_as_frequent_as_they_must_be(samples: list[Sample]) -> None:
    labels = np.stack([sample.labels for sample in samples])
    presence = {kind: (labels == kind).any((1, 2)).mean() for kind in (CYCLONE, RIVER)}
    assert presence[CYCLONE] >= 0.75 and presence[RIVER] >= 0.65
    assert 0.001 <= (labels == CYCLONE).mean() <= 0.005
    assert 0.010 <= (labels == RIVER).mean() <= 0.016
    assert np.mean([score_constant(each) for each in labels]) <= 0.52
    relaxed = np.stack([sample.relaxed for sample in samples])
    assert (relaxed > 0).mean() > 1.2 * (labels > 0).mean()


def test_count_and_length_follow_the_area() -> None:
    labels = np.stack([make_sample(7, index, 192, 288).labels for index in range(16)])
    assert 0.001 <= (labels == CYCLONE).mean() <= 0.005
    assert 0.008 <= (labels == RIVER).mean() <= 0.018  # of few samples


def test_variables_have_their_scales_in_the_tropics(samples: list[Sample]) -> None:
    latitude = 90 - 180 * (np.arange(HEIGHT) + 0.5) / HEIGHT
    tropics = np.abs(latitude) < 30
    found = np.stack([sample.data[tropics] for sample in samples]).astype(np.float64)
    for index, name in enumerate(VARIABLES):
        mean, deviation = SCALES[name]
        values = found[..., index]
        assert abs(values.mean() - mean) < 0.25 * deviation, name
        if name != "PRECT":  # its deviation hangs on the few largest values
            # winds blow harder here, so that storms show on a small map
            assert 0.85 * deviation < values.std() < 1.35 * deviation, name
        assert sample_dtype(samples) == np.float32


def sample_dtype(samples: list[Sample]) -> Any:
    return {sample.data.dtype for sample in samples}.pop()


def test_cyclones_are_moist_low_and_wet(samples: list[Sample]) -> None:
    data = np.stack([sample.data for sample in samples]).astype(np.float64)
    inside = np.stack([sample.labels for sample in samples]) == CYCLONE
    mean = {name: data[inside, index].mean() for index, name in enumerate(VARIABLES)}
    assert mean["TMQ"] == pytest.approx(53, abs=3)
    assert mean["PSL"] == pytest.approx(100_698, abs=150)
    assert mean["PRECT"] > 5 * SCALES["PRECT"][0]


def make_calm(numbers: np.random.Generator) -> Canvas:
    canvas = Canvas(HEIGHT, WIDTH, numbers)
    for name in VARIABLES:
        canvas.fields[name][:] = 0.0
    return canvas


@pytest.mark.parametrize("is_warm", [True, False])
def test_a_low_with_a_cold_core_is_not_labelled(is_warm: bool) -> None:
    canvas = make_calm(np.random.default_rng(4))
    weather.add_vortex(canvas, is_warm)
    assert canvas.fields["PSL"].min() < -800 and canvas.fields["TMQ"].max() > 15
    core = np.unravel_index(canvas.fields["PSL"].argmin(), canvas.fields["PSL"].shape)
    assert (canvas.fields["T500"][core] > 0) == is_warm
    assert (canvas.labels[core] == CYCLONE) == is_warm
    assert canvas.labels.any() == is_warm


def test_a_moist_patch_is_round_and_not_labelled() -> None:
    extents = {}
    for name, add in (("river", weather.add_river), ("patch", weather.add_patch)):
        canvas = make_calm(np.random.default_rng(5))
        add(canvas)
        moist = canvas.fields["TMQ"] > 9
        canvas.fields["TMQ"][moist].max()
        rows, columns = (np.ptp(each) + 1 for each in np.nonzero(moist))
        extents[name] = moist.sum() / max(rows, columns) ** 2
        assert canvas.labels.any() == (name == "river")
    assert extents["river"] < 0.3 < 0.6 < extents["patch"]


def test_a_sample_depends_on_seed_number_and_size_alone() -> None:
    first, again = make_sample(3, 5, 24, 36), make_sample(3, 5, 24, 36)
    assert np.array_equal(first.data, again.data) and np.array_equal(first.labels, again.labels)
    for other in (make_sample(4, 5, 24, 36), make_sample(3, 6, 24, 36)):
        assert not np.array_equal(first.data, other.data)


# files --------------------------------------------------------------------------------------------


def test_files_have_the_real_layout(small: Path) -> None:
    found = read_deepcam(small)
    assert (found.height, found.width) == (24, 36)
    assert (len(found.train), len(found.validation)) == (6, 2)
    assert found.train[0].name == "data-2100-01-01-00-1.h5"
    with h5py.File(found.train[0]) as file:
        content = file["climate"]
        assert content["data"].shape == (24, 36, 16) and content["data"].dtype == np.float32
        assert content["data"].chunks is None, "one piece, which can be read at once"
        assert content["data_stats"].shape == (4, 16)
        assert np.allclose(content["data_stats"][0], content["data"][...].mean((0, 1)), rtol=1e-4)
        for name in ("labels_0", "labels_1"):
            labels = content[name][...]
            assert labels.shape == (24, 36) and labels.max() <= 2
            shares = [100 * (labels == kind).mean() for kind in range(3)]
            assert np.allclose(content[f"{name}_stats"][4:], shares)


def test_statistics_are_those_of_the_training_samples(small: Path) -> None:
    data = []
    for path in read_deepcam(small).train:
        with h5py.File(path) as file:
            data.append(file["climate/data"][...].astype(np.float64))
    values, found = np.stack(data), read_stats(small)
    axes = (0, 1, 2)
    wanted = {
        "mean": values.mean(axes),
        "sqmean": (values**2).mean(axes),
        "minval": values.min(axes),
        "maxval": values.max(axes),
    }
    for name, expected in wanted.items():
        assert np.allclose(found[name], expected, rtol=1e-5), name
    with h5py.File(small / "stats.h5") as file:
        assert file["climate/count"][()] == 6


def test_names_of_files_do_not_repeat() -> None:
    names = [generate.name_of(index) for index in range(6000)]
    assert len(set(names)) == 6000 and names == sorted(names)


# statistics of what a user has --------------------------------------------------------------------


class Counted:
    """Counts how many files are read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fail_at: int | None = None) -> None:
        self.count, self.fail_at = 0, fail_at
        self.real = stats.describe_file
        monkeypatch.setattr(stats, "describe_file", self)

    def __call__(self, path: Path) -> Any:
        if self.count == self.fail_at:
            raise KeyboardInterrupt
        self.count += 1
        return self.real(path)


def test_a_killed_computation_continues(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, kept, shown = read_deepcam(small).train, tmp_path / "kept", []
    first = Counted(monkeypatch, fail_at=4)
    with pytest.raises(KeyboardInterrupt):
        stats.compute_stats(files, tmp_path / "stats.h5", kept, lambda *_: None, processes=1)
    with open(kept, "a") as lines:
        lines.write('{"stamp": "torn')
    assert first.count == 4 and not (tmp_path / "stats.h5").exists()
    monkeypatch.undo()
    second = Counted(monkeypatch)
    stats.compute_stats(
        files, tmp_path / "stats.h5", kept, lambda *row: shown.append(row), processes=1
    )
    assert second.count == 2 and shown == [(4, 6), (5, 6), (6, 6)]
    for name, expected in read_stats(small).items():
        assert np.array_equal(read_stats(tmp_path)[name], expected)


def test_a_file_that_has_changed_is_read_again(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, kept = read_deepcam(small).train[:2], tmp_path / "kept"
    copies = [tmp_path / path.name for path in files]
    for path, copy in zip(files, copies, strict=True):
        copy.write_bytes(path.read_bytes())
    stats.compute_stats(copies, tmp_path / "stats.h5", kept, lambda *_: None, processes=1)
    write_sample(copies[0], make_sample(9, 9, 24, 36))
    counted = Counted(monkeypatch)
    stats.compute_stats(copies, tmp_path / "stats.h5", kept, lambda *_: None, processes=1)
    assert counted.count == 1


def test_values_that_are_not_numbers_are_named(small: Path, tmp_path: Path) -> None:
    copy = tmp_path / "data-1.h5"
    copy.write_bytes(read_deepcam(small).train[0].read_bytes())
    with h5py.File(copy, "r+") as file:
        file["climate/data"][3, 4, 5] = np.nan
    with pytest.raises(Refused, match=f"^{copy}: climate/data has values that are not finite"):
        stats.compute_stats([copy], tmp_path / "s.h5", tmp_path / "k", lambda *_: None, processes=1)
    values = {name: np.full(16, np.inf) for name in STATISTICS}
    write_stats(tmp_path / "stats.h5", 1, values)
    with pytest.raises(Refused, match=r"stats\.h5: climate/mean has values that are not finite"):
        read_stats(tmp_path)


def test_several_processes_compute_the_same(small: Path, tmp_path: Path) -> None:
    files = read_deepcam(small).train
    stats.compute_stats(files, tmp_path / "stats.h5", tmp_path / "k", lambda *_: None, processes=2)
    for name, expected in read_stats(small).items():
        assert np.array_equal(read_stats(tmp_path)[name], expected)


# fetching -----------------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name, value in (
        ("TRAIN_SAMPLES", 3),
        ("VALIDATION_SAMPLES", 2),
        ("HEIGHT", 24),
        ("WIDTH", 36),
    ):
        monkeypatch.setattr(generate, name, value)
    return tmp_path / "cache" / "rampup" / "data"


def test_fetch_makes_the_small_set_once(cache: Path) -> None:
    shown: list[tuple[int, int]] = []
    found = fetch.fetch("deepcam-demo", None, lambda _: None, lambda *row: shown.append(row))
    assert found.folder == cache / "deepcam-demo" and found.source
    assert len(read_deepcam(found.folder).train) == 3 and shown
    sets.check_files("deepcam-demo")
    assert fetch.fetch("deepcam-demo", None, lambda _: None, lambda *_: None).source == ""
    assert [path.name for path in cache.iterdir()] == ["deepcam-demo"]


def test_a_damaged_small_set_is_made_again(cache: Path) -> None:
    lines: list[str] = []
    place = fetch.fetch("deepcam-demo", None, lines.append, lambda *_: None).folder
    read_deepcam(place).train[1].unlink()
    with pytest.raises(Refused, match="is missing in"):
        sets.check_files("deepcam-demo")
    fetch.fetch("deepcam-demo", None, lines.append, lambda *_: None)
    sets.check_files("deepcam-demo")
    assert lines == ["deepcam-demo is here but damaged: it is replaced"]
    (place / sets.MADE).write_text("[]")
    with pytest.raises(Refused):
        sets.check_files("deepcam-demo")


def test_fetch_prepares_what_a_user_has_and_leaves_it_alone(
    cache: Path, small: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    for part in ("train", "validation"):
        (own / part).symlink_to(small / part)
    found = fetch.fetch("deepcam", own, lambda _: None, lambda *_: None)
    assert sorted(path.name for path in own.iterdir()) == ["train", "validation"]
    assert read_deepcam(found.folder).lowest == read_deepcam(small).lowest
    sets.check_files("deepcam")
    (own / "stats.h5").write_bytes((small / "stats.h5").read_bytes())
    again = fetch.fetch("deepcam", own, lambda _: None, lambda *_: None)
    assert (again.folder / "stats.h5").is_symlink(), "its own statistics are used where it has some"


@pytest.mark.parametrize("name", ["deepcam", "deepcam-demo"])
def test_the_wrong_source_says_what_to_type(cache: Path, tmp_path: Path, name: str) -> None:
    given = None if name == "deepcam" else tmp_path
    with pytest.raises(RampupError) as caught:
        fetch.fetch(name, given, lambda _: None, lambda *_: None)
    assert "rampup fetch deepcam --from" in caught.value.hint
    assert "rampup fetch deepcam-demo" in caught.value.hint


def test_a_folder_that_is_not_a_set_says_what_to_type(small: Path, tmp_path: Path) -> None:
    def refuse(folder: Path) -> RampupError:
        with pytest.raises(Refused) as caught:
            read_deepcam(folder)
        return caught.value

    assert "rampup fetch deepcam-demo" in refuse(tmp_path / "absent").hint
    own = tmp_path / "own"
    for part in ("train", "validation"):
        (own / part).mkdir(parents=True)
        assert "has no file data-*.h5" in refuse(own).message
        path = own / part / "data-1.h5"
        path.write_bytes(next((small / part).iterdir()).read_bytes())
    assert refuse(own).hint.startswith(f"rampup fetch deepcam --from {own}")
    (own / "stats.h5").write_bytes(b"nothing")
    assert "stats.h5 is not a complete HDF5 file" in refuse(own).message
    (own / "stats.h5").write_bytes((small / "stats.h5").read_bytes())
    (own / "train" / "data-1.h5").write_bytes(b"\x89HDF")
    assert "data-1.h5 is not a complete HDF5 file" in refuse(own).message
    with h5py.File(own / "train" / "data-1.h5", "w") as file:
        file["climate/data"] = np.zeros((24, 36, 4), np.float32)
        file["climate/labels_0"] = np.zeros((24, 36))
    assert "has the shape (24, 36, 4)" in refuse(own).message


def test_links_are_listed_but_not_followed(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "stats.h5").write_text("12")
    (tmp_path / "set" / "train").symlink_to("/usr")
    making.list_files(tmp_path / "set")
    assert json.loads((tmp_path / "set" / sets.MADE).read_text()) == {"stats.h5": 2}
