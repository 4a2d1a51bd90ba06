"""Jets: those that come with rampup, files of both layouts, and what `rampup fetch jets` makes of
the published ones."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from numpy.typing import NDArray

from rampup.datasets import fetch, making, sets
from rampup.datasets.jets import features, layouts, prepare, shipped
from rampup.datasets.jets.features import FIXED_EDGES, Jets, fixed_bins, mass_of_particles
from rampup.datasets.jets.files import check_jets, list_jet_files, read_jets
from rampup.errors import RampupError, Refused

DRAWS = np.random.RandomState(5)
LIMIT = 3_000_000
MASSES = (80.0, 91.0, 173.0, 9.0, 250.0, 50.0)
KINDS = (0, 1, 2, 0, 1, -1)
"""W, Z, top, a W that is too light, a Z that is too heavy, and a quark."""
NAMES = {3: "j_mass", 53: "j_g", 54: "j_q", 55: "j_w", 56: "j_z", 57: "j_t", 58: "j_undef"}


@pytest.fixture(scope="module")
def jets() -> Jets:
    return read_jets()


def publish(path: Path, rows: int = 6, particles: int = 6, named: bool = False) -> dict[str, Any]:
    """Write a file as the published ones are, and return its arrays."""
    cells = np.zeros((rows, particles, 16), np.float32)
    full = particles - 2  # the last two are padding
    pt = np.sort(DRAWS.uniform(1, 100, (rows, full)))[:, ::-1]
    eta, phi = DRAWS.uniform(-0.5, 0.5, (2, rows, full))
    cells[:, :full, 3], cells[:, :full, 4] = 2 * pt, pt / 300
    cells[:, :full, 5], cells[:, :full, 6] = pt, pt / 500
    cells[:, :full, 8], cells[:, :full, 11] = eta, phi
    cells[:, :full, 13], cells[:, :full, 15] = np.hypot(eta, phi), 0.9
    table = np.zeros((rows, 59), np.float32)
    table[:, 3] = np.resize(MASSES, rows)
    for row, kind in enumerate(np.resize(KINDS, rows)):
        table[row, 54 if kind < 0 else 55 + kind] = 1
    with h5py.File(path, "w") as file:
        file["jetConstituentList"], file["jets"] = cells, table
        if named:
            names = [NAMES.get(place, f"j_{place}") for place in range(59)]
            file["jetFeatureNames"] = np.array(names, "S20")
    return {"cells": cells, "table": table}


def change(path: Path, name: str, place: Any, value: float) -> None:
    with h5py.File(path, "r+") as file:
        file[name][place] = value


# the shipped jets ---------------------------------------------------------------------------------


def test_the_shipped_file_is_small_and_what_the_readme_says(jets: Jets) -> None:
    assert shipped.SHIPPED.stat().st_size < LIMIT
    assert len(jets) == 14_200 and jets.points.shape == (14_200, 100, 8)
    assert jets.points.dtype == np.float32 and np.isfinite(jets.points).all()
    assert np.bincount(jets.label).tolist() == [4884, 5160, 4156]
    assert jets.mass.min() > 10 and jets.mass.max() < 200
    assert (jets.multiplicity >= features.count_particles(jets.points)).all()


def test_its_features_fit_each_other(jets: Jets) -> None:
    some = jets.points[:500].astype(np.float64)
    eta, phi, pt_rel, far, energy, energy_rel, pt, cos = np.moveaxis(some, 2, 0)
    there = features.is_particle(jets.points[:500])
    assert there[:, 0].all() and not there.all()
    assert np.abs(far - np.hypot(eta, phi))[there].max() < 1e-5
    assert (np.diff(pt, axis=1)[there[:, 1:]] <= 1e-6).all(), "the largest pt comes first"
    jet_pt, jet_energy = (pt - pt_rel), (energy - energy_rel)
    for logarithm in (jet_pt, jet_energy):  # the same for all particles of a jet
        spread = np.where(there, logarithm, logarithm[:, :1]).std(1)
        assert spread.max() < 1e-5
    assert (cos[there] <= 1 + 1e-6).all() and cos[there].min() > 0.6
    assert (energy[there] >= pt[there] - 1e-6).all()


def test_the_particles_have_nearly_the_mass_of_their_jet(jets: Jets) -> None:
    missing = jets.mass - mass_of_particles(jets.points)
    assert 0 < np.median(missing) < 2.5, "particles below 1 GeV are not in the file"
    assert np.percentile(missing, 99) < 10


def test_what_is_packed_is_unpacked() -> None:
    pt = -np.sort(-DRAWS.uniform(0, 900, (50, 100)), axis=1).astype(np.float16)
    count = DRAWS.randint(1, 101, 50)
    pt[np.arange(100) >= count[:, None]] = 0
    angles = DRAWS.uniform(-1, 1, (2, 50, 100)) * (pt > 0)
    jet = np.stack([DRAWS.uniform(500, 1000, 50), np.zeros(50), DRAWS.uniform(10, 200, 50)], 1)
    label, multiplicity = DRAWS.randint(0, 3, 50), DRAWS.randint(1, 200, 50)
    given = {"pt": pt, "etarel": angles[0], "phirel": angles[1], "jet": jet}
    found = shipped.unpack(shipped.pack(given | {"label": label, "multiplicity": multiplicity}))
    assert (found["pt"][pt == 0] == 0).all()
    assert np.abs(found["pt"] / np.where(pt > 0, pt, 1) - (pt > 0)).max() < 0.004
    for name, angle in zip(("etarel", "phirel"), angles, strict=True):
        assert np.abs(found[name] - angle).max() <= shipped.STEP / 2 + 1e-6
    assert (found["label"] == label).all() and (found["multiplicity"] == multiplicity).all()


def test_the_tool_makes_such_a_file_of_any_simulation(tmp_path: Path) -> None:
    path = Path(__file__).parents[3] / "tools" / "make_jets.py"
    spec = importlib.util.spec_from_file_location("make_jets", path)
    assert spec is not None and spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    pt = -np.sort(-DRAWS.uniform(1, 300, (30, 100)), axis=1).astype(np.float16)
    mass = np.linspace(5, 220, 30)
    np.savez(
        tmp_path / "simulation.npz",
        pt=pt,
        etarel=np.zeros_like(pt),
        phirel=np.zeros_like(pt),
        jet=np.stack([np.full(30, 700.0), np.zeros(30), mass, np.full(30, 100)], 1),
        label=np.arange(30) % 3,
    )
    found = tool.select(tmp_path / "simulation.npz", 20)
    assert (found["jet"][:, 2] > 10).all() and (found["jet"][:, 2] < 200).all()
    shown = mass[np.abs(mass[:, None] - found["jet"][:, 2]).argmin(0)]
    assert np.abs(shown - found["jet"][:, 2]).max() < 0.01
    with pytest.raises(SystemExit, match="jets between"):
        tool.select(tmp_path / "simulation.npz", 29)


# mass bins ----------------------------------------------------------------------------------------


def test_mass_bins_are_fixed_and_never_counted_anew() -> None:
    assert len(FIXED_EDGES) == 21 and FIXED_EDGES[1] == pytest.approx(200 / 19)
    mass = np.array([0.0, 10.6, 100.0, 199.9, 5000.0, 1e9])
    assert fixed_bins(mass).tolist() == [0, 1, 9, 18, 19, 19]
    # one bin is empty here, and the others keep their numbers
    assert fixed_bins(mass[[0, 2]]).tolist() == [0, 9]


def test_two_files_give_the_same_mass_the_same_bin(tmp_path: Path) -> None:
    publish(tmp_path / "a.h5", 3)
    publish(tmp_path / "b.h5", 2)
    both = read_jets(tmp_path)
    assert both.mass_bin.tolist() == [7, 8, 16, 7, 8]


# published files ----------------------------------------------------------------------------------


@pytest.mark.parametrize("named", [False, True])
def test_a_published_file(tmp_path: Path, named: bool) -> None:
    arrays = publish(tmp_path / "a.h5", named=named)
    found = read_jets(tmp_path / "a.h5")
    assert found.label.tolist() == [0, 1, 2] and found.mass.tolist() == [80, 91, 173]
    assert found.multiplicity.tolist() == [4, 4, 4]
    cells = arrays["cells"][:3]
    for place, column in ((0, 8), (1, 11), (3, 13), (7, 15)):
        assert np.abs(found.points[:, :6, place] - cells[..., column]).max() < 1e-6
    for place, column in ((2, 6), (4, 3), (5, 4), (6, 5)):
        expected = np.log(cells[:, :4, column])
        assert np.abs(found.points[:, :4, place] - expected).max() < 1e-6
    assert not found.points[:, 4:].any(), "padding is zeros in all features"


def test_columns_are_found_by_their_names(tmp_path: Path) -> None:
    arrays = publish(tmp_path / "a.h5")
    order = np.r_[58, :58]
    names = np.array([NAMES.get(place, f"j_{place}") for place in range(59)], "S20")[order]
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        file["jets"][...] = arrays["table"][:, order]
        file["jetFeatureNames"] = names
    assert read_jets(tmp_path / "a.h5").mass.tolist() == [80, 91, 173]
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        file["jetFeatureNames"][4] = b"j_mess"
    with pytest.raises(RampupError, match=r"a\.h5: there is no column j_mass"):
        read_jets(tmp_path / "a.h5")


def test_what_is_not_a_number_becomes_zero(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    publish(path)
    cell = "jetConstituentList"
    changes = {(0, 0, 8): np.nan, (0, 1, 3): np.inf, (0, 2, 6): 0.0, (0, 3, 4): -1.0}
    for place, value in changes.items():
        change(path, cell, place, value)
    change(path, cell, (1, 0, 5), np.nan)
    points = read_jets(path).points
    assert np.isfinite(points).all()
    assert (points[0, 0, 0], points[0, 1, 4], points[0, 2, 2], points[0, 3, 5]) == (0, 0, 0, 0)
    assert (points[1] != 0).any(1).sum() == 3, "a particle without pt is none"


def test_angles_are_wrapped_at_pi(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    publish(path)
    for place, angle in enumerate((4.0, -4.0, 6.2)):
        change(path, "jetConstituentList", (0, place, 11), angle)
    points = read_jets(path).points
    expected = [4 - 2 * np.pi, 2 * np.pi - 4, 6.2 - 2 * np.pi]
    assert points[0, :3, 1] == pytest.approx(expected, abs=1e-5)
    assert points[0, :3, 3] == pytest.approx(np.hypot(points[0, :3, 0], expected), abs=1e-5)


def test_the_particles_of_largest_pt_are_kept(tmp_path: Path) -> None:
    publish(tmp_path / "many.h5", particles=130)
    with h5py.File(tmp_path / "many.h5", "r+") as file:
        file["jetConstituentList"][...] = file["jetConstituentList"][()][:, ::-1]
    found = read_jets(tmp_path / "many.h5")
    assert found.points.shape == (3, 100, 8) and (found.multiplicity == 100).all()
    assert (np.diff(found.points[..., 6]) <= 0).all()


# files that UCluster prepares ---------------------------------------------------------------------


def prepared(path: Path, rows: int = 5, **changes: Any) -> dict[str, NDArray[Any]]:
    points = np.zeros((rows, 100, 8), np.float32)
    points[:, :7] = DRAWS.uniform(0.1, 1, (rows, 7, 8))
    label = np.eye(3)[np.arange(rows) % 3]
    arrays = {"data": points, "label": label, "pid": np.arange(rows), **changes}
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            if array is not None:
                file[name] = array
    return arrays


def test_a_prepared_file(tmp_path: Path) -> None:
    arrays = prepared(tmp_path / "a.h5", masses=np.linspace(20, 190, 5))
    found = read_jets(tmp_path / "a.h5")
    assert (found.points == arrays["data"]).all() and found.mass[0] == 20
    assert found.label.tolist() == [0, 1, 2, 0, 1]
    # the file counts the bins that it has: 0 to 4
    assert found.mass_bin.tolist() == [1, 5, 9, 14, 18], "the fixed ones, by the mass"


def test_masses_are_computed_where_a_prepared_file_has_none(tmp_path: Path) -> None:
    arrays = prepared(tmp_path / "a.h5", pid=np.arange(5)[:, None])
    found = read_jets(tmp_path / "a.h5")
    assert (found.mass == mass_of_particles(arrays["data"])).all() and (found.mass > 0).all()
    assert found.mass_bin.tolist() == [0, 1, 2, 3, 4]


def test_what_is_not_a_number_in_a_prepared_file_becomes_zero(tmp_path: Path) -> None:
    arrays = prepared(tmp_path / "a.h5")
    for place, value in enumerate((np.nan, np.inf, -np.inf)):
        change(tmp_path / "a.h5", "data", (0, 0, place), value)
    points = read_jets(tmp_path / "a.h5").points
    assert not points[0, 0, :3].any() and (points[1:] == arrays["data"][1:]).all()


def test_rows_without_a_class_or_a_particle_are_left_out(tmp_path: Path) -> None:
    label = np.eye(3)[[0, 1, 2, 0, 1]]
    label[1] = 0
    points = DRAWS.uniform(0.1, 1, (5, 100, 8))
    points[3] = 0
    prepared(tmp_path / "a.h5", label=label, data=points)
    found = read_jets(tmp_path / "a.h5")
    assert found.label.tolist() == [0, 2, 1] and found.mass_bin.tolist() == [0, 2, 4]


def test_files_of_unequal_length_and_both_layouts_are_read_together(tmp_path: Path) -> None:
    prepared(tmp_path / "b.h5", 7)
    prepared(tmp_path / "c.hdf5", 2)
    publish(tmp_path / "a.h5", 12, particles=30)
    (tmp_path / "notes.txt").write_text("not a file of jets")
    found = read_jets(tmp_path)
    assert len(found) == 6 + 7 + 2 and found.points.shape[1:] == (100, 8)


def test_parts_are_found_by_name(tmp_path: Path) -> None:
    for name in ("train_multi_20v", "test_multi_20v", "eval_multi_20v"):
        prepared(tmp_path / f"{name}.h5")
    parts = {
        part: [path.name for path in files] for part, files in list_jet_files(tmp_path).items()
    }
    assert parts["train"] == ["train_multi_20v.h5"] and parts["third"] == ["eval_multi_20v.h5"]
    (tmp_path / "eval_multi_20v.h5").unlink()
    assert [len(files) for files in list_jet_files(tmp_path).values()] == [2, 0, 0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"label": None}, "has data, pid"),
        ({"pid": np.arange(4)}, r"pid \(4,\)"),
        ({"data": np.zeros((5, 100, 7))}, r"data \(5, 100, 7\)"),
    ],
)
def test_a_file_of_another_kind_is_refused(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    prepared(tmp_path / "a.h5", **changes)
    with pytest.raises(RampupError, match=rf"a\.h5.*{words}"):
        read_jets(tmp_path / "a.h5")


def test_few_columns_are_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["jetConstituentList"], file["jets"] = np.zeros((5, 9, 15)), np.zeros((5, 59))
    with pytest.raises(RampupError, match=r"a\.h5: 15 columns, and 16 are needed"):
        read_jets(tmp_path / "a.h5")


def test_nothing_of_use_is_refused(tmp_path: Path) -> None:
    prepared(tmp_path / "a.h5", label=np.zeros((5, 3)))
    with pytest.raises(RampupError, match="no W, Z or top jet"):
        read_jets(tmp_path / "a.h5")


def test_before_a_run_only_names_are_looked_at(tmp_path: Path) -> None:
    (tmp_path / "a.h5").write_text("damaged")
    check_jets(tmp_path / "a.h5")
    with pytest.raises(RampupError, match=r"a\.h5 is not a complete HDF5 file"):
        read_jets(tmp_path / "a.h5")
    (tmp_path / "b.npz").write_text("")
    (tmp_path / "empty").mkdir()
    for name, words in (("b.npz", "not an HDF5"), ("empty", "no file"), ("absent", "there is no")):
        with pytest.raises(Refused, match=words):
            check_jets(tmp_path / name)


# rampup fetch jets --------------------------------------------------------------------------------


def fetch_jets(given: Path | None, where: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(where))
    return fetch.fetch("jets", given, lambda line: None, lambda done, all_: None).folder


@pytest.fixture
def zenodo(tmp_path: Path) -> Path:
    for part, count in (("train", 5), ("val", 2)):
        (tmp_path / "zenodo" / part).mkdir(parents=True)
        for number in range(count):
            publish(tmp_path / "zenodo" / part / f"jetImage_{number}.h5", 6 + number)
    return tmp_path / "zenodo"


def test_the_published_files_become_three_parts(
    zenodo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = fetch_jets(zenodo, tmp_path / "cache", monkeypatch)
    parts = list_jet_files(folder)
    assert [len(files) for files in parts.values()] == [4, 1, 2]
    again, first = read_jets(parts["train"]), read_jets(sorted((zenodo / "train").iterdir())[:4])
    for name in ("points", "mass", "label", "multiplicity", "mass_bin"):
        assert (getattr(again, name) == getattr(first, name)).all(), name
    sets.check_files("jets")
    with h5py.File(parts["train"][0]) as file:
        assert set(file) == {"data", "label", "pid", "masses"}
        assert file["label"][()].tolist() == np.eye(3).tolist()
    assert json.loads((folder / sets.MADE).read_text())["train/jets-0000.h5"] > 0


def test_a_file_alone_is_prepared_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(tmp_path / "a.h5")
    folder = fetch_jets(tmp_path / "a.h5", tmp_path / "cache", monkeypatch)
    assert [path.name for path in list_jet_files(folder)["train"]] == ["jets-0000.h5"]
    assert len(read_jets(folder)) == 3


def test_a_damaged_file_is_named_and_what_was_there_stays(
    zenodo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = fetch_jets(zenodo, tmp_path / "cache", monkeypatch)
    before = sorted(folder.rglob("*"))
    damaged = zenodo / "val" / "jetImage_1.h5"
    damaged.write_bytes(damaged.read_bytes()[:2000])
    with pytest.raises(RampupError, match=r"val/jetImage_1\.h5 is not a complete HDF5 file"):
        fetch_jets(zenodo, tmp_path / "cache", monkeypatch)
    assert sorted(folder.rglob("*")) == before
    assert [path.name for path in folder.parent.iterdir()] == ["jets"], "nothing half-made is left"
    assert sorted(zenodo.rglob("*.h5")) == sorted({*zenodo.rglob("*")} - {*zenodo.glob("*")})


@pytest.mark.parametrize(
    ("name", "words"),
    [(None, "can't be fetched"), ("a.tar.gz", "is an archive"), ("a.txt", "not an HDF5 file")],
)
def test_what_can_not_be_prepared_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str | None, words: str
) -> None:
    given = tmp_path / name if name else None
    if given:
        given.write_text("x")
    with pytest.raises(Refused, match=words) as error:
        fetch_jets(given, tmp_path / "cache", monkeypatch)
    assert "--from" in (error.value.hint or "")


def test_no_jet_of_use_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(tmp_path / "a.h5")
    change(tmp_path / "a.h5", "jets", (slice(None), 3), 5.0)
    with pytest.raises(Refused, match="no W, Z or top jet"):
        fetch_jets(tmp_path / "a.h5", tmp_path / "cache", monkeypatch)


def test_writing_keeps_all_that_is_read(tmp_path: Path, jets: Jets) -> None:
    some = jets.take(slice(0, 40))
    layouts.write_prepared(tmp_path / "a.h5", some)
    found = read_jets(tmp_path / "a.h5")
    for name in ("points", "mass", "label", "mass_bin"):
        assert (getattr(found, name) == getattr(some, name)).all(), name


def test_the_maker_is_the_one_that_the_list_names() -> None:
    module, _, name = sets.named("jets").maker.partition(":")
    assert module == prepare.__name__ and name == prepare.prepare.__name__
    assert making.Maker is not None
