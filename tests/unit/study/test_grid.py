"""From what is typed after `rampup sweep` to the points of a study."""

from pathlib import Path

import pytest

from rampup.config.resolve import Request
from rampup.errors import RampupError, Refused, UsageError
from rampup.study import grid


def points(
    tmp_path: Path, *settings: str, target: str | None = "digits", **more: object
) -> list[grid.Point]:
    return grid.points(Request(target=target, settings=settings, **more), tmp_path)  # type: ignore[arg-type]


def of_command(tmp_path: Path, command: tuple[str, ...], *settings: str) -> list[grid.Point]:
    return points(tmp_path, *settings, target=None, command=command)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1", ["1"]),
        ("1,2", ["1", "2"]),
        ("", [""]),
        ("[1,2],[3,4]", ["[1,2]", "[3,4]"]),
        ('["a]",2],3', ['["a]",2]', "3"]),
        ('"a,b",c', ["a,b", "c"]),
        ("'a,b'", ["a,b"]),
        ('"a"', ['"a"']),  # no comma in it: as `run` takes it
        ("it's,ok", ["it's", "ok"]),
        ("$(id),a b,é\n", ["$(id)", "a b", "é\n"]),
    ],
)
def test_values_are_cut_at_commas_that_are_no_part_of_them(text: str, values: list[str]) -> None:
    assert grid.split(text, f"key={text}") == values


@pytest.mark.parametrize("text", ["1,", ",1", "1,,2", "[1,2", '"a,b', '"a, b"c,d'])
def test_what_can_not_be_cut_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        grid.split(text, f"key={text}")


def test_the_grid_is_the_product_in_the_order_of_the_words(tmp_path: Path) -> None:
    found = points(tmp_path, "lr=1e-2,1e-3", "epochs=3", "batch_size=16,32")
    assert [point.values for point in found] == [
        {"lr": 0.01, "batch_size": 16},
        {"lr": 0.01, "batch_size": 32},
        {"lr": 0.001, "batch_size": 16},
        {"lr": 0.001, "batch_size": 32},
    ]
    assert {point.spec.train["epochs"] for point in found} == {3}
    assert found[0].label == "lr=0.01 batch_size=16"
    assert found[0].spec.name == "digits"


def test_a_point_that_is_written_in_two_ways_is_one(tmp_path: Path) -> None:
    assert [point.values for point in points(tmp_path, "lr=0.1,1e-1,0.2")] == [
        {"lr": 0.1},
        {"lr": 0.2},
    ]


def test_a_list_has_commas_of_its_own(tmp_path: Path) -> None:
    assert [point.values for point in points(tmp_path, "hidden=64,32", target="mnist")] == [
        {"hidden": [64, 32]}
    ]
    found = points(tmp_path, "hidden=[64],[64,32]", target="mnist")
    assert [point.values["hidden"] for point in found] == [[64], [64, 32]]


def test_dotted_keys_reach_other_tables(tmp_path: Path) -> None:
    found = points(tmp_path, "resources.nodes=1,2", "checkpoint.keep=2,3")
    assert [(point.spec.resources.nodes, point.spec.checkpoint["keep"]) for point in found] == [
        (1, 2),
        (1, 3),
        (2, 2),
        (2, 3),
    ]
    assert len({point.id for point in found}) == 4, (
        "what is varied makes another point, whatever it is"
    )


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        (("lrr=1,2",), Refused, "unknown setting train.lrr"),
        (("lr=0.1,abc",), Refused, "in the point lr=abc"),
        (("lr=1,2", "epochs=1,x"), Refused, "in the point lr=1 epochs=x"),
        (("lr=1", "lr=2"), UsageError, "lr is given twice"),
        (
            (
                f"seed={','.join(map(str, range(101)))}",
                f"epochs={','.join(map(str, range(1, 101)))}",
            ),
            Refused,
            "10,100",
        ),
    ],
)
def test_what_can_not_be_a_point_is_refused(
    tmp_path: Path, settings: tuple[str, ...], error: type[RampupError], words: str
) -> None:
    with pytest.raises(error, match=words):
        points(tmp_path, *settings)


@pytest.mark.parametrize(
    ("target", "settings"), [("nope", ("lr=1,2",)), ("digits", ("lr=1,2", "lrr=1,2"))]
)
def test_what_is_wrong_with_all_points_is_no_matter_of_one(
    tmp_path: Path, target: str, settings: tuple[str, ...]
) -> None:
    with pytest.raises(Refused) as refused:
        points(tmp_path, *settings, target=target)
    assert "in the point" not in refused.value.message


def test_values_are_put_into_a_command(tmp_path: Path) -> None:
    command = ("bash", "-c", "echo {p} {q.r} {{p}} {print} ${x}", "{p}", "a{p}b")
    found = of_command(tmp_path, command, "p=$(id),'a, b'", "x=7")
    assert found[0].spec.command == (
        "bash",
        "-c",
        "echo $(id) {q.r} {$(id)} {print} $7",
        "$(id)",
        "a$(id)b",
    )
    assert found[1].spec.command[3:] == ("a, b", "aa, bb")
    assert [point.spec.train for point in found] == [{"p": "$(id)", "x": 7}, {"p": "a, b", "x": 7}]
    assert [point.spec.name for point in found] == ["bash", "bash"]


def test_the_study_has_one_name_whatever_the_scripts_are_called(tmp_path: Path) -> None:
    found = of_command(tmp_path, ("python", "{p}.py"), "p=first,second")
    assert [point.spec.name for point in found] == ["first", "first"]


def test_values_are_put_into_the_command_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "it.toml").write_text('command = ["echo", "{p}", "{q}"]\n[train]\np = "x"\n')
    request = Request(target="it.toml", settings=("p={q},2",))
    found = grid.points(request, tmp_path)
    assert [point.spec.command for point in found] == [("echo", "{q}", "{q}"), ("echo", "2", "{q}")]
    assert len({point.id for point in found}) == 2
    (tmp_path / "it.toml").write_text('command = ["echo", "{pp}"]\n')
    request = Request(target="it.toml", settings=("p=1,2",))
    assert [
        note.partition(" ")[0]
        for note in grid.find_unfilled(request, grid.points(request, tmp_path))
    ] == ["{pp}"]


@pytest.mark.parametrize(
    ("words", "noticed"),
    [
        (("{learning_rat}", "{learning_rate}", "{print}"), ["{learning_rat}"]),
        (("{q}",), ["{q}"]),  # nothing that is varied comes into it
        (("{learning_rate}", "{q}"), []),
        (("a",), []),
    ],
)
def test_a_slip_in_a_command_is_noticed(
    tmp_path: Path, words: tuple[str, ...], noticed: list[str]
) -> None:
    request = Request(command=("python", "a.py", *words), settings=("learning_rate=1,2",))
    notes = grid.find_unfilled(request, grid.points(request, tmp_path))
    assert [note.partition(" ")[0] for note in notes] == noticed


def test_a_point_is_the_same_however_its_keys_are_written(tmp_path: Path) -> None:
    def ids(*settings: str, **more: object) -> list[str]:
        return [point.id for point in points(tmp_path, *settings, **more)]

    plain = ids("lr=1,3")
    assert ids("train.lr=1,3") == plain
    assert ids("train.lr=1,3", "checkpoint.keep=5") == plain
    assert ids("train.lr=1") == ids("lr=1", "checkpoint.keep=5") == plain[:1]
    two = {"tasks_per_node": "2"}
    assert ids("resources.tasks_per_node=1,2")[1:] == ids(options=two)


def test_more_time_is_the_same_point_and_more_ranks_are_another(tmp_path: Path) -> None:
    plain = points(tmp_path, "lr=1,2")
    again = points(
        tmp_path,
        "lr=2,1",
        "epochs=20",
        options={"time": "8:00:00", "mem": "9G", "cpus_per_task": "3"},
    )
    assert plain[0].spec.train["epochs"] == again[0].spec.train["epochs"], "said or not: the same"
    assert [point.id for point in plain] == [point.id for point in again][::-1]
    assert not {point.id for point in plain} & {
        point.id for point in points(tmp_path, "lr=1,2", options={"tasks_per_node": "2"})
    }
    assert not {point.id for point in plain} & {
        point.id for point in points(tmp_path, "lr=1,2", "epochs=11")
    }


def test_the_same_command_elsewhere_is_another_point(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    here, there = (
        of_command(folder, ("python", "a.py"), "p=1")[0].id
        for folder in (tmp_path, tmp_path / "other")
    )
    assert here != there
