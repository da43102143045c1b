"""How a network is built, as plain numbers: what a checkpoint says of itself, and the tensors that follow from it.

Needs no torch: a file is checked against its own metadata before any network exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

MAX_WIDTH, MAX_LAYERS, MAX_BLOCKS, MAX_ROWS = 8192, 16, 32, 4096
POSE, REFERENCE, ORDERED, MAX_SECTORS = 8, 9, 3, 16
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
    lists    (rows, features) of each block of road rows that the layout defers: the last block of an observation then
             refers to a list of them (`simulation.roads`), which is encoded once for all who read it
    sectors  of headings that have lists of their own, 0 without lists
    """

    blocks: tuple[tuple[int, int], ...]
    actions: int
    head: Literal["discrete", "continuous"]
    hidden: tuple[int, ...]
    encoder: int
    memory: Literal["none", "gru", "lstm"] = "none"
    memory_width: int = 0
    lists: tuple[tuple[int, int], ...] = ()
    sectors: int = 0

    @property
    def observation(self) -> int:
        """Floats per agent row."""
        return sum(rows * features for rows, features in self.blocks)

    @property
    def state_width(self) -> int:
        """Floats of memory per agent row: an LSTM carries its output and its cell."""
        return self.memory_width * (2 if self.memory == "lstm" else 1)

    @property
    def pooled(self) -> tuple[bool, ...]:
        """Which blocks are sets of rows that are encoded and pooled; the others are what an agent knows of itself.

        Beside lists, up to three rows are no set: the next goals come in their order, which a maximum would lose.
        """
        return tuple(rows > (ORDERED if self.lists else 1) for rows, _ in self.blocks)

    @property
    def rows(self) -> tuple[int, ...]:
        """Features of a row of each pooled block."""
        return tuple(features for (_, features), pooled in zip(self.blocks, self.pooled, strict=True) if pooled)

    @property
    def known(self) -> int:
        """Floats of what an agent knows of itself; for a reference, the pose in the list."""
        own = [block for block, pooled in zip(self.blocks, self.pooled, strict=True) if not pooled]
        own = [*own[:-1], (1, POSE)] if self.lists else own
        return sum(rows * features for rows, features in own)

    @property
    def list_widths(self) -> tuple[int, int]:
        """Widths of the two layers on each row of a list; the second may be wider, since many share it."""
        return self.encoder, 2 * self.encoder

    @property
    def road(self) -> int:
        """Floats of what a list means to somebody in it, 0 without lists."""
        return 2 * self.encoder if self.lists else 0

    @property
    def joined(self) -> int:
        """Inputs of the first hidden layer: what is known on two scales, the blocks encoded, the road as it is read."""
        return 2 * self.known + self.encoder * len(self.rows) + self.road

    def described(self) -> dict[str, Any]:
        """As JSON values; of a network without lists as before there were any."""
        found = asdict(self) | {"blocks": [list(block) for block in self.blocks], "hidden": list(self.hidden)}
        if not self.lists:
            return {name: value for name, value in found.items() if name not in _OF_LISTS}
        return found | {"lists": [list(block) for block in self.lists]}


_OF_LISTS = ("lists", "sectors")


def shape_from(described: Mapping[str, Any]) -> NetworkShape:
    """The shape that `described` wrote. Raises ValueError, TypeError or KeyError for anything else."""
    given: dict[str, Any] = {"lists": (), "sectors": 0, **described}
    if set(given) != {item.name for item in fields(NetworkShape)}:
        raise ValueError(f"network has fields {sorted(given)}")
    blocks, lists = (
        tuple((int(rows), int(features)) for rows, features in given[name]) for name in ("blocks", "lists")
    )
    shape = NetworkShape(**{**given, "blocks": blocks, "lists": lists, "hidden": tuple(given["hidden"])})
    sizes = (shape.actions, shape.encoder, *shape.hidden, *(size for block in blocks + lists for size in block))
    if not all(type(size) is int and 0 < size <= MAX_WIDTH for size in sizes):
        raise ValueError(f"sizes {sizes} are out of range")
    if not 1 <= len(shape.hidden) <= MAX_LAYERS or not 1 <= len(blocks) + len(lists) <= MAX_BLOCKS:
        raise ValueError(f"{len(shape.hidden)} hidden layers, {len(blocks + lists)} blocks are out of range")
    if type(shape.sectors) is not int or not 0 <= shape.sectors <= MAX_SECTORS or bool(lists) != bool(shape.sectors):
        raise ValueError(f"{len(lists)} lists with {shape.sectors} sectors")
    if lists and blocks[-1] != (1, REFERENCE):
        raise ValueError(f"lists, but the last block is {blocks[-1]} and not a reference of {REFERENCE} numbers")
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
    for number, features in enumerate(shape.rows):
        width = shape.encoder
        found[f"encoders.{number}.row.weight"], found[f"encoders.{number}.row.bias"] = (width, 2 * features), (width,)
        found[f"encoders.{number}.own.weight"] = (width, 2 * shape.known)
        found[f"encoders.{number}.out.weight"], found[f"encoders.{number}.out.bias"] = (width, width), (width,)
    if shape.lists:
        first, second = shape.list_widths
        for number, (_, features) in enumerate(shape.lists):
            name = f"lists.blocks.{number}"
            found[f"{name}.0.weight"], found[f"{name}.0.bias"] = (first, 2 * features), (first,)
            found[f"{name}.2.weight"], found[f"{name}.2.bias"] = (second, first), (second,)
        both = 2 * shape.road
        found["road.list.weight"], found["road.list.bias"] = (both, second * len(shape.lists)), (both,)
        found["road.pose.weight"], found["road.pose.bias"] = (both, 2 * POSE), (both,)
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
