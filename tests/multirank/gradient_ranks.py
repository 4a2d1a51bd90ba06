"""Steps of the gradient layer alone on real gloo ranks: every rank is a fork that takes some steps
and tells of them.

    python gradient_ranks.py CASES.json        prints {name: [what each rank tells]}

A case names the world, the way, the network, who wishes what when (`wishes`: {step: [rank, stop,
save]}), in which step a new process takes over (`renewed`), and whether another rank is late in
each step (`late`).
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch._dynamo  # the first optimizer of a process imports it: once, before the forks
from ranks import ENDS_AFTER_S, free_port, variables
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

from rampup.data.order import piece
from rampup.engines.torch import gradients as torch_gradients
from rampup.engines.torch.world import World
from rampup.runtime.context import read_context

WIDTH, CLASSES, BATCH, STEPS = 6, 3, 12, 5


class Network(nn.Module):
    """`tied`: one weight in two layers. `idle`: a layer that the loss never reaches. `again`: a
    layer that gets its gradient in two parts."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.first, self.last = nn.Linear(WIDTH, 16), nn.Linear(16, CLASSES)
        self.second, self.third = nn.Linear(16, 16), nn.Linear(16, 16)
        if kind == "tied":
            self.third.weight = self.second.weight

    def forward(self, x: Tensor) -> Tensor:
        x = self.second(self.first(x).relu()).relu()
        if self.kind == "again":
            for _ in range(2):
                x = checkpoint(self.third, x, use_reentrant=True)
            return self.last(x)
        return self.last(x if self.kind == "idle" else self.third(x).relu())


class Trainer:
    """The way an engine takes steps, on fixed data."""

    def __init__(self, case: dict[str, Any], world: World, before: "Trainer | None" = None) -> None:
        self.case, self.world = case, world
        torch.manual_seed(3)
        self.x, self.y = torch.randn(STEPS, BATCH, WIDTH), torch.randint(CLASSES, (STEPS, BATCH))
        self.model = Network(case["network"])
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), 1e-2, weight_decay=0.5, fused=True
        )
        if before:
            self.model.load_state_dict(before.model.state_dict())
            self.optimizer.load_state_dict(before.optimizer.state_dict())
        scaler = GradScaler("cpu", enabled=False)
        self.gradients = torch_gradients.build_gradients(case["way"], self.model, scaler, world)

    def step(self, step: int) -> dict[str, Any]:
        gradients, rank = self.gradients, self.world.rank
        if self.case["late"] and step % self.world.size == rank:
            time.sleep(0.02)
        who, stop, save = self.case["wishes"].get(str(step), (-1, False, False))
        gradients.stop_vote, gradients.save_vote = stop and who == rank, save and who == rank
        self.add_all(self.x[step], self.y[step])
        sent = len(getattr(gradients, "_sent", ()))
        loss = float(gradients.reduce())
        if self.case["clip"]:
            nn.utils.clip_grad_norm_(gradients.parameters, self.case["clip"])
        self.optimizer.step()
        return {
            "loss": loss,
            "agreed": [gradients.stop_agreed, gradients.save_agreed],
            "sent": sent,
        }

    def add_all(self, x: Tensor, y: Tensor) -> None:
        samples = self.case["samples"]
        low, high = piece(0, samples, self.world.rank, self.world.size)
        count = min(self.case["accumulate"], high - low)
        self.gradients.begin(min(samples, self.world.size), count)
        for part in range(count):
            begin, end = piece(low, high, part, count)
            scores = self.gradients.model(x[begin:end])
            self.gradients.add(cross_entropy(scores, y[begin:end]), (end - begin) / samples)

    def weights(self) -> dict[str, str]:
        """Bit for bit."""
        return {
            name: value.numpy().tobytes().hex() for name, value in self.model.state_dict().items()
        }


def take_steps(case: dict[str, Any]) -> dict[str, Any]:
    torch_gradients.CHUNK_BYTES = case["chunk_bytes"]
    with World(read_context(), torch.device("cpu")) as world:
        trainer, steps = Trainer(case, world), []
        for step in range(STEPS):
            if step == case["renewed"]:
                trainer = Trainer(case, world, before=trainer)
            steps.append(trainer.step(step))
        told = {name: [step[name] for step in steps] for name in steps[0]}
        return {**told, "weights": trainer.weights()}


def run(case: dict[str, Any]) -> list[Any]:
    """Between finding a free port and taking it, another program may have it: then once more."""
    told = run_once(case)
    lost = any(one is None or "in use" in one.get("error", "") for one in told)
    return run_once(case) if lost else told


def run_once(case: dict[str, Any]) -> list[Any]:
    """What each rank tells; None when it ended without a word."""
    port, pipes = free_port(), []
    for rank in range(case["world"]):
        read, write = os.pipe()
        if os.fork() == 0:
            become_rank(case, rank, port, write)
        os.close(write)
        pipes.append(read)
    told = []
    for read in pipes:
        with open(read) as file:
            told.append(json.loads(file.read() or "null"))
        os.wait()
    return told


def become_rank(case: dict[str, Any], rank: int, port: int, write: int) -> NoReturn:
    signal.alarm(ENDS_AFTER_S)  # a rank that hangs must not outlive the test
    os.environ |= variables("", rank, case["world"], port)
    try:
        told = take_steps(case)
    except Exception as error:
        told = {"error": f"{type(error).__name__}: {error}"}
    with open(write, "w") as file:
        json.dump(told, file)
    os._exit(0)


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(
        json.dumps(
            {name: run(case) for name, case in json.loads(Path(sys.argv[1]).read_text()).items()}
        )
    )
