"""A model on paper: its layers as lines of text, and its graph for TensorBoard.

Asked once, when training begins, by torch_insight.py. Nothing is computed: modules are listed, and
the graph is traced with symbols. A model that can't be traced so, because its path depends on the
data, has no graph; its lines it has.
"""

from collections import Counter

import torch.fx
from torch import nn

from rampup.core.tfevents import Node

LONGEST = 100
MOST_LAYERS = 400


def layers_of(model: nn.Module) -> list[str]:
    """One line for each part that computes: its name, what it is, and how many parameters it
    has."""
    parts = [(name, part) for name, part in model.named_modules() if not any(part.children())]
    lines = [
        f"{name or 'model'}: {str(part)[:LONGEST]}{_parameters(part)}"
        for name, part in parts[:MOST_LAYERS]
    ]
    if len(parts) > MOST_LAYERS:
        lines.append(f"and {len(parts) - MOST_LAYERS} more")
    return [*lines, f"in all:{_parameters(model) or ' no parameters'}"]


def _parameters(part: nn.Module) -> str:
    count = sum(parameter.numel() for parameter in part.parameters())
    return f" {count:,} parameters" if count else ""


def graph_of(model: nn.Module) -> list[Node]:
    """Empty where the model can't be traced."""
    try:
        traced = torch.fx.symbolic_trace(model)
    except Exception:  # its forward is the user's own and may do anything with a symbol
        return []
    parts = dict(traced.named_modules())
    names = _names(traced.graph)
    return [
        Node(
            name=names[node],
            kind=type(parts[str(node.target)]).__name__
            if node.op == "call_module"
            else _kind(node),
            inputs=[names[each] for each in node.all_input_nodes],
            note=str(parts[str(node.target)])[:LONGEST] if node.op == "call_module" else "",
        )
        for node in traced.graph.nodes
    ]


def _names(graph: torch.fx.Graph) -> dict[torch.fx.Node, str]:
    """`layer1.0.conv1` is layer1/0/conv1, in boxes that can be opened; one that is called again has
    a number."""
    calls: Counter[str] = Counter()
    found = {}
    for node in graph.nodes:
        name = str(node.target).replace(".", "/") if node.op == "call_module" else node.name
        calls[name] += 1
        found[node] = name if calls[name] == 1 else f"{name}_{calls[name]}"
    return found


def _kind(node: torch.fx.Node) -> str:
    return (
        str(getattr(node.target, "__name__", node.target))
        if node.op.startswith("call")
        else node.op
    )
