"""Train a small network on real handwritten digits.

`python train.py` runs it, and so does `rampup run`: with more ranks, on a cluster, and again after
an interruption. Make it yours: the data in `load`, the network in `main`, and what counts in
`accuracy`.
"""

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import rampup
from rampup.recipe import read_digits

HELD_BACK = 360
"""Samples that are kept for validation."""


def load(device: torch.device) -> tuple[Tensor, Tensor]:
    images, labels = read_digits()  # numpy arrays that come with rampup
    inputs = torch.tensor(images, dtype=torch.float32, device=device) / 16
    return inputs, torch.tensor(labels, device=device)


def accuracy(model: nn.Module, inputs: Tensor, labels: Tensor) -> float:
    with torch.no_grad():
        return float((model(inputs).argmax(dim=1) == labels).float().mean())


def main() -> None:
    run = rampup.init(lr=0.01, epochs=10, batch_size=64, hidden=64, seed=0)
    config = run.config
    on_gpu = torch.cuda.is_available()
    device = (
        torch.device("cuda", run.local_rank % torch.cuda.device_count())
        if on_gpu
        else torch.device("cpu")
    )
    if run.world_size > 1:
        dist.init_process_group("nccl" if on_gpu else "gloo")

    torch.manual_seed(config.seed)  # the same weights on every rank
    inputs, labels = load(device)
    count = len(inputs) - HELD_BACK
    model = nn.Sequential(nn.Linear(64, config.hidden), nn.ReLU(), nn.Linear(config.hidden, 10)).to(
        device
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=config.lr)

    saved = run.resume()  # after an interruption: the last state that was saved
    if saved is not None:
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
    ranked = DistributedDataParallel(model) if run.world_size > 1 else model

    steps = count // config.batch_size
    for step in range(run.step + 1, config.epochs * steps + 1):
        epoch, batch = divmod(step - 1, steps)
        # the order depends only on seed and epoch: the batches are the same on any number of ranks
        # and in a resumed run
        order = torch.randperm(
            count, generator=torch.Generator().manual_seed(1000 * config.seed + epoch)
        )
        chosen = order[batch * config.batch_size : (batch + 1) * config.batch_size]
        mine = chosen.tensor_split(run.world_size)[run.rank].to(device)
        loss = cross_entropy(ranked(inputs[mine]), labels[mine])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

        stop = run.should_stop  # a time limit is near, or somebody asked
        if batch + 1 == steps:
            held_back = accuracy(model, inputs[count:], labels[count:])
            run.log(step=step, epoch=epoch + 1, train_loss=loss.item(), val_accuracy=held_back)
        if stop or batch + 1 == steps:
            run.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, step)
        if stop:
            break
    run.finish()
    if run.world_size > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
