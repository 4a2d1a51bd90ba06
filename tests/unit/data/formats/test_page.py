"""The readers of docs/file-formats.md and docs/data-larger-than-memory.md run, on files as the pages
describe them."""

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import h5py
import numpy as np
import pyarrow
import pytest
from PIL import Image
from pyarrow import parquet

from rampup.data import reader
from rampup.data.formats import columns, hdf5, npy, tfrecord
from rampup.data.formats import parquet as parquet_rows
from tests.unit.data.formats.reading import read
from tests.unit.data.formats.test_tfrecord import entry, field, frame

DOCS = Path(__file__).parents[4] / "docs"
PAGE = DOCS / "file-formats.md"
OWN_FORMAT = DOCS / "data-larger-than-memory.md"
BLOCKS = re.compile(r"^```python\n(.*?)^```", re.M | re.S)


@pytest.fixture
def _public(monkeypatch: pytest.MonkeyPatch) -> None:
    """The names of rampup.torch without torch, which takes seconds to import."""
    module: Any = ModuleType("rampup.torch")
    for room in (reader, columns, hdf5, npy, parquet_rows, tfrecord):
        for name in vars(room):
            setattr(module, name, getattr(room, name))
    monkeypatch.setitem(sys.modules, "rampup.torch", module)


def write_files() -> None:
    """Write what the page names, with small numbers of samples."""
    for folder in ("climate/train", "cubes", "pairs", "jets", "rows", "many", "images/cat"):
        Path(folder).mkdir(parents=True)
    with h5py.File("climate/train/data-0.h5", "w") as file:
        file["climate/data"] = np.full((768, 1152, 16), 150, np.float32)
        file["climate/labels_0"] = np.ones((768, 1152), np.uint8)
    x, y = np.ones((128, 128, 128, 4), "<i2"), np.arange(4, dtype="<f4")
    label = entry("y", 2, field(1, y.tobytes()))
    example = field(1, entry("x", 1, field(1, x.tobytes())) + label)
    Path("cubes/a.tfrecord").write_bytes(frame(example))
    Path("many/a.tfrecord").write_bytes(3 * frame(field(1, label)))
    np.save("pairs/data-0.npy", np.zeros((768, 1152, 16), np.float32))
    np.save("pairs/label-0.npy", np.zeros((768, 1152), np.uint8))
    with h5py.File("jets/a.h5", "w") as file:
        file["data"], file["label"] = np.zeros((5, 100, 8), "f4"), np.zeros((5, 3), "f4")
    np.save("data.npy", np.zeros((6, 100, 8), np.float32))
    np.save("label.npy", np.zeros((6, 3), np.float32))
    table = pyarrow.table({"features": [[1.0] * 12] * 7, "label": list(range(7))})
    parquet.write_table(table, "rows/a.parquet")
    Image.new("RGB", (80, 50), (255, 0, 0)).save("images/cat/a.jpg")


@pytest.mark.usefixtures("_public")
def test_the_programs_of_the_page_read_their_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_files()
    names: dict[str, Any] = {}
    for block in BLOCKS.findall(PAGE.read_text()):
        exec(block, names)
    sizes = {"train": 1, "cubes": 1, "pairs": 1, "jets": 5, "same": 6, "rows": 7, "records": 3}
    found = {}
    for name, size in sizes.items():
        assert len(names[name]) == size
        found[name] = read(names[name], range(size))
    assert (found["train"][0] == 0.5).all() and (found["train"][1] == 1).all()
    assert np.allclose(found["cubes"][0], np.log(2)) and found["cubes"][1].tolist() == [
        [0, 1, 2, 3]
    ]
    assert found["rows"][1].tolist() == list(range(7))
    images = names["ImageFolder"]("images")
    pixels, labels = read(images, [0])
    assert pixels[0, 5, 5].tolist() == [254, 0, 0] and labels.tolist() == [0]
    assert images.files() == [Path("images/cat/a.jpg")]


@pytest.mark.usefixtures("_public")
def test_the_reader_of_your_own_format_reads_records_and_notices_a_cut(tmp_path: Path) -> None:
    (block,) = (it for it in BLOCKS.findall(OWN_FORMAT.read_text()) if "SampleReader" in it)
    assert len(block.strip().splitlines()) <= 28, "about 20 lines beside the imports"
    names: dict[str, Any] = {}
    exec(block, names)
    rows = np.random.default_rng(1).standard_normal((5, 1000), np.float32)
    path = tmp_path / "waves.raw"
    rows.tofile(path)
    waves = names["Waves"](path)
    assert len(waves) == 5 and waves.files() == [path]
    found, numbers = read(waves, [4, 0, 2])
    assert (found == rows[[4, 0, 2]]).all() and numbers.tolist() == [4, 0, 2]
    with open(path, "r+b") as file:
        file.truncate(4 * 4000)
    with pytest.raises(EOFError, match=r"waves\.raw ends before sample 4"):
        read(waves, [4])
