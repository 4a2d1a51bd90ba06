"""YAML of other programs: plain values within limits, and everything else is one clear line."""

from pathlib import Path

import pytest

from rampup.config.yaml_file import read_yaml
from rampup.errors import Refused

pytest.importorskip("yaml")


def read(folder: Path, text: str | bytes) -> dict[str, object]:
    path = folder / "cosmo.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_yaml(path)


def test_plain_values(tmp_path: Path) -> None:
    text = "a: {b: [1, 2.5, x, null, true], 32: 0.25}\nc: &same {d: 1}\ne:\n  <<: *same\n  f: 2\n"
    assert read(tmp_path, text) == {
        "a": {"b": [1, 2.5, "x", None, True], 32: 0.25},
        "c": {"d": 1},
        "e": {"d": 1, "f": 2},
    }


BOMB = "a0: &a0 [x, x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 9)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, "more than 20 aliases"),
        ("a: " + "[" * 200 + "]" * 200, "more than 20 levels"),
        ("a:\n" + "- 1\n" * 30_000, "more than 20000 values"),
        ("a: " + "x" * 1_000_001, "larger than 1 MB"),
        ("a: !!python/object/apply:os.system ['true']", "not valid YAML"),
        ("a: !own 3", "not valid YAML"),
        ("a: 1\nb: 2\na: 3", "'a' is there twice"),
        ("a: [1, 2", "not valid YAML"),
        ("a: *nowhere", "not valid YAML"),
        ("", "no keys at its top"),
        ("- 1\n- 2", "no keys at its top"),
        ("a: 1\n---\nb: 2", "not valid YAML"),
        (b"\xff\xfe\x00a", "not text"),
        ("a: 2026-99-99", "can't be read as YAML"),
        ("? [1, 2]\n: 3", "not valid YAML"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(Refused, match=message):
        read(tmp_path, text)


def test_an_alias_to_itself_has_an_end(tmp_path: Path) -> None:
    with pytest.raises(Refused):
        read(tmp_path, "a: &a {b: *a}")
