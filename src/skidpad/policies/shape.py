"""How a network is built, as plain numbers: what a checkpoint says of itself, and the tensors that follow from it.

Needs no torch: a file is checked against its own metadata before any network exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

MAX_WIDTH, MAX_LAYERS, MAX_BLOCKS, MAX_ROWS = 8192, 16, 32, 4096
GATES = {"none": 0, "gru": 3, "lstm": 4}


@dataclass(frozen=True)
class NetworkShape:
    """Sizes of an actor-critic over the blocks of a layout.

    blocks   (rows, features) of each block of an observation row, in order
    actions  entries of the action table (discrete head) or 2 (continuous head)
    hidden   widths of the layers after the encoders
    encoder  width of the two layers that each row of a block with several rows goes through
    memory   recurrent cell after the last hidden layer
    memory_width  of the cell, 0 without one
    """

    blocks: tuple[tuple[int, int], ...]
    actions: int
    head: Literal["discrete", "continuous"]
    hidden: tuple[int, ...]
    encoder: int
    memory: Literal["none", "gru", "lstm"] = "none"
    memory_width: int = 0

    @property
    def observation(self) -> int:
        """Floats per agent row."""
        return sum(rows * features for rows, features in self.blocks)

    @property
    def state_width(self) -> int:
        """Floats of memory per agent row: an LSTM carries its output and its cell."""
        return self.memory_width * (2 if self.memory == "lstm" else 1)

    @property
    def known(self) -> int:
        """Floats of the blocks of one row: what an agent knows of itself."""
        return sum(features for rows, features in self.blocks if rows == 1)

    @property
    def joined(self) -> int:
        """Inputs of the first hidden layer: blocks of one row on two scales, the others encoded."""
        return 2 * self.known + self.encoder * sum(rows > 1 for rows, _ in self.blocks)

    def described(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self) | {"blocks": [list(block) for block in self.blocks], "hidden": list(self.hidden)}


def shape_from(described: Mapping[str, Any]) -> NetworkShape:
    """The shape that `described` wrote. Raises ValueError, TypeError or KeyError for anything else."""
    if set(described) != {item.name for item in fields(NetworkShape)}:
        raise ValueError(f"network has fields {sorted(described)}")
    blocks = tuple((int(rows), int(features)) for rows, features in described["blocks"])
    shape = NetworkShape(**{**described, "blocks": blocks, "hidden": tuple(described["hidden"])})
    sizes = (shape.actions, shape.encoder, *shape.hidden, *(size for block in blocks for size in block))
    if not all(type(size) is int and 0 < size <= MAX_WIDTH for size in sizes):
        raise ValueError(f"sizes {sizes} are out of range")
    if not 1 <= len(shape.hidden) <= MAX_LAYERS or not 1 <= len(blocks) <= MAX_BLOCKS:
        raise ValueError(f"{len(shape.hidden)} hidden layers, {len(blocks)} blocks are out of range")
    if shape.head not in ("discrete", "continuous"):
        raise ValueError(f"head {shape.head!r} is neither discrete nor continuous")
    if shape.memory not in GATES:
        raise ValueError(f"memory {shape.memory!r} is none of {', '.join(GATES)}")
    if type(shape.memory_width) is not int or not 0 <= shape.memory_width <= MAX_WIDTH:
        raise ValueError(f"memory_width {shape.memory_width} is out of range")
    if (shape.memory == "none") != (shape.memory_width == 0):
        raise ValueError(f"memory {shape.memory!r} with width {shape.memory_width}")
    return shape


def tensor_shapes(shape: NetworkShape) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor that a network of this shape has."""
    found: dict[str, tuple[int, ...]] = {}
    many = [features for rows, features in shape.blocks if rows > 1]
    for number, features in enumerate(many):
        width = shape.encoder
        found[f"encoders.{number}.row.weight"], found[f"encoders.{number}.row.bias"] = (width, 2 * features), (width,)
        found[f"encoders.{number}.own.weight"] = (width, 2 * shape.known)
        found[f"encoders.{number}.out.weight"], found[f"encoders.{number}.out.bias"] = (width, width), (width,)
    width = shape.joined
    for layer, outputs in enumerate(shape.hidden):
        found[f"trunk.{2 * layer}.weight"], found[f"trunk.{2 * layer}.bias"] = (outputs, width), (outputs,)
        width = outputs
    if gates := GATES[shape.memory]:
        size = gates * shape.memory_width
        found["memory.weight_ih"], found["memory.weight_hh"] = (size, width), (size, shape.memory_width)
        found["memory.bias_ih"] = found["memory.bias_hh"] = (size,)
        width = shape.memory_width
    found["actor.weight"], found["actor.bias"] = (shape.actions, width), (shape.actions,)
    found["critic.weight"], found["critic.bias"] = (1, width), (1,)
    if shape.head == "continuous":
        found["log_std"] = (shape.actions,)
    return found
