"""Parts of the torch engine that need no ranks: devices, precision, optimizers, the running
loss."""

import socket
from datetime import timedelta
from functools import partial
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

from rampup.core.engines.torch import TORCH
from rampup.core.hardware import bf16_is_fast
from rampup.core.settings import Settings
from rampup.data.memory import TensorData
from rampup.engines.torch import device as torch_device
from rampup.engines.torch.optimizers import lighten
from rampup.engines.torch.parts import RunningLoss, compile_model
from rampup.engines.torch.task import optimizer_of
from rampup.engines.torch.world import World, knock
from rampup.errors import RampupError
from rampup.runtime.context import RankContext

CPU = torch.device("cpu")


def choose(wish: str, gpus_per_node: int = 0, local_rank: int = 0, **env: str) -> torch.device:
    context = RankContext(local_rank=local_rank, local_world_size=2)
    return torch_device.choose(wish, context, gpus_per_node, env)


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


@pytest.fixture
def no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)


def test_auto_takes_the_gpu_of_the_rank(gpus: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose("auto", local_rank=1) == torch.device("cuda", 1)
    # the launcher shows each rank its own
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert choose("auto", local_rank=1) == torch.device("cuda", 0)


def test_auto_takes_the_cpu_without_a_gpu(no_gpus: None) -> None:
    assert choose("auto") == CPU
    assert (
        choose("auto", CUDA_VISIBLE_DEVICES="-1")
        == choose("cpu", CUDA_VISIBLE_DEVICES="NoDevFiles")
        == CPU
    )


@pytest.mark.parametrize("wish", ["auto", "cpu"])
def test_a_reserved_gpu_is_never_left_idle(no_gpus: None, wish: str) -> None:
    with pytest.raises(RampupError, match="gpus_per_node=1 reserves a GPU") as caught:
        choose(wish, gpus_per_node=1)
    assert "--gpus-per-node 0" in caught.value.hint
    with pytest.raises(RampupError, match="CUDA_VISIBLE_DEVICES=0,1 reserves a GPU"):
        choose(wish, CUDA_VISIBLE_DEVICES="0,1")


@pytest.mark.parametrize("wish", ["cuda", "mps"])
def test_a_device_that_is_not_there_is_refused(no_gpus: None, wish: str) -> None:
    with pytest.raises(RampupError, match=f"device={wish}: torch sees no"):
        choose(wish)


def cpu_with(flags: str, folder: Path) -> Path:
    path = folder / "cpuinfo"
    path.write_text(f"processor\t: 0\nmodel name\t: CPU\nflags\t\t: fpu {flags} sse2\n")
    return path


@pytest.mark.parametrize(
    ("flags", "fast"), [("avx512_bf16", True), ("amx_bf16 amx_tile", True), ("avx2", False)]
)
def test_bf16_needs_a_cpu_that_has_it(flags: str, fast: bool, tmp_path: Path) -> None:
    assert bf16_is_fast(cpu_with(flags, tmp_path)) is fast
    assert not bf16_is_fast(tmp_path / "nothing")


def test_slow_precisions_are_refused_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_device, "bf16_is_fast", lambda: False)
    with pytest.raises(RampupError, match="neither AVX512-BF16 nor AMX") as caught:
        torch_device.check_precision("bf16", CPU)
    assert caught.value.hint == "precision=fp32"
    with pytest.raises(RampupError, match="fp16 does not train on a CPU"):
        torch_device.check_precision("fp16", CPU)
    torch_device.check_precision("bf16", torch.device("cuda", 0))
    monkeypatch.setattr(torch_device, "bf16_is_fast", lambda: True)
    torch_device.check_precision("bf16", CPU)


def test_autocast_follows_the_precision() -> None:
    layer, x = nn.Linear(4, 4), torch.randn(2, 4)
    for precision, kind in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        with torch_device.autocast(precision, CPU):
            assert layer(x).dtype is kind


@pytest.mark.parametrize(
    ("name", "kind"),
    [("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW), ("sgd", torch.optim.SGD)],
)
def test_optimizers_are_fused(name: str, kind: type) -> None:
    values: dict[str, Any] = {key: setting.default for key, setting in TORCH.items()}
    settings = Settings(
        values | {"optimizer": name, "lr": 0.3, "weight_decay": 0.1, "momentum": 0.8}
    )
    model = nn.Linear(2, 2)
    model.bias.requires_grad_(False)
    optimizer = optimizer_of(settings, model)
    assert type(optimizer) is lighten(kind)
    (group,) = optimizer.param_groups
    assert (group["lr"], group["weight_decay"], group["fused"]) == (0.3, 0.1, True)
    assert len(group["params"]) == 1 and group.get("momentum", 0.8) == 0.8


@pytest.mark.parametrize("wanted", [True, False])
def test_compile_really_compiles(wanted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    # the C++ compiler takes seconds
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.9))
    called = compile_model(model, Settings({"compile": wanted}))
    counters.clear()
    called.eval()
    assert not model.training
    called(torch.randn(4, 3))
    assert counters["frames"]["ok"] == int(wanted)
    assert next(iter(called.parameters())) is model[0].weight


def test_the_running_loss() -> None:
    loss = RunningLoss(CPU)
    loss.add(torch.tensor(1.0), 10)
    assert loss.row_mean() == 1.0
    loss.add(torch.tensor(4.0), 20)
    assert loss.row_mean() == 4.0
    assert loss.epoch_mean() == 3.0
    loss.restart()
    loss.add(torch.tensor(7.0), 1)
    assert loss.row_mean() == loss.epoch_mean() == 7.0


def test_batches_of_tensors() -> None:
    data = TensorData(torch.arange(6).reshape(3, 2), torch.tensor([5, 6, 7]))
    pairs, numbers = data.batch(torch.tensor([2, 0]))
    assert pairs.tolist() == [[4, 5], [0, 1]] and numbers.tolist() == [7, 5]


def test_any_nesting_moves_to_the_device() -> None:
    images = torch.zeros(2, 3, 4, 4)
    moved = torch_device.move(
        {"x": [images], "y": (torch.ones(1), "name")}, CPU, channels_last=True
    )
    assert moved["x"][0].is_contiguous(memory_format=torch.channels_last)
    assert isinstance(moved["y"], tuple) and moved["y"][1] == "name"


def test_a_rank_that_comes_first_knocks_until_somebody_listens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(server.getsockname()[1]))
    assert knock(timedelta(seconds=0.05)) >= timedelta(seconds=0.05), "in vain, and torch will tell"
    later = Timer(0.2, server.listen)
    later.start()
    waited = knock()
    later.join()
    server.close()
    assert timedelta(seconds=0.1) < waited < timedelta(seconds=20)


def test_ranks_of_one_node_have_their_store_on_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(port))
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    store, _, _ = World(RankContext(), CPU)._open_store(timedelta(seconds=10))
    store.set("name", "value")
    assert store.get("name") == b"value"
    tables = [Path(f"/proc/net/{name}") for name in ("tcp", "tcp6")]
    lines = [line for path in tables if path.exists() for line in path.read_text().splitlines()]
    rows = [line.split() for line in lines]
    listening = [row[1] for row in rows if row[3] == "0A" and row[1].endswith(f":{port:04X}")]
    assert listening == [f"0100007F:{port:04X}"]
