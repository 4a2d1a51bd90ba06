"""Fit a + b x + c x^2 + d x^3 to sin(x) by gradient descent: the smallest loop that uses rampup.

Run it with `rampup run polyfit lr=2e-6`, or by itself with `python train.py`. Stopped or killed, it
continues from its last checkpoint when it is started again.
"""

import math

import torch

import rampup

run = rampup.init()
torch.manual_seed(run.config.seed)

x = torch.linspace(-math.pi, math.pi, run.config.points)
y = torch.sin(x)
powers = torch.stack([x**power for power in range(4)])
state = run.resume() or {"coefficients": torch.randn(4)}
coefficients = state["coefficients"].requires_grad_()

for step in range(run.step + 1, run.config.steps + 1):
    loss = (coefficients @ powers - y).square().sum()
    (gradient,) = torch.autograd.grad(loss, coefficients)
    with torch.no_grad():
        coefficients -= run.config.lr * gradient
    if step % 100 == 0:
        a, b, c, d = coefficients.tolist()
        run.log(step=step, loss=loss, a=a, b=b, c=c, d=d)
    stop = run.should_stop
    if stop or step % 500 == 0:
        run.save({"coefficients": coefficients}, step)
    if stop:
        break

a, b, c, d = coefficients.tolist()
if run.rank == 0:
    print(f"y = {a:.4f} + {b:.4f} x + {c:.4f} x^2 + {d:.4f} x^3")
run.finish()
