"""Driver checkpoints: what training writes and evaluation reads, and the policy that drives with one.

The metadata carries everything that decides how observations and actions are read: layout and its digest, dynamics,
goals, head, sizes. A world that differs in any of it is refused, since weights would read wrongly scaled numbers
without any error. Inference runs on a padded batch of fixed size and one thread, so that an agent's action does not
depend on who shares its batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from skidpad.artifacts.weights import Weights, load_weights, save_weights
from skidpad.errors import CheckpointError, listed
from skidpad.policies.policy import ActionSelection, PolicySpec, RowStreams, Thought
from skidpad.policies.shape import NetworkShape, shape_from, tensor_shapes
from skidpad.settings.schema import EnvSettings, NetworkSettings

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from skidpad.policies.lists import Lists
    from skidpad.policies.network import ActorCritic

F32 = NDArray[np.float32]
CHECKPOINT_KIND = "driver/2"


@dataclass(frozen=True)
class Architecture:
    """Everything that decides the layout of observations and actions (E16)."""

    layout: str
    layout_digest: str
    dynamics: str
    compat_dynamics: str
    num_goals: int
    network: NetworkShape

    def settings(self) -> dict[str, Any]:
        """The dotted keys this fixes in a suite. A discrete head drives discrete worlds by index and continuous ones
        through the action table, so it leaves the action type open."""
        keys: dict[str, Any] = {
            "env.layout": self.layout,
            "env.dynamics": self.dynamics,
            "env.compat.dynamics": self.compat_dynamics,
            "env.num_goals": self.num_goals,
        }
        if self.network.head == "continuous":
            keys["env.action_type"] = "continuous"
        return keys


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A loaded checkpoint file. `step` and `epoch` are of the training that wrote it."""

    path: Path
    architecture: Architecture
    arrays: Mapping[str, NDArray[Any]]
    digest: str
    step: int
    epoch: int
    run: str


def architecture_for(
    env: EnvSettings, sizes: NetworkSettings, *, head: Literal["discrete", "continuous"] | None = None
) -> Architecture:
    """The architecture of a network of these sizes for a world; the head follows the world's action type unless
    given."""
    from skidpad.simulation.actions import action_space
    from skidpad.simulation.layout import layout_of
    from skidpad.simulation.roads import features_of

    layout = layout_of(env)
    head = head or env.action_type
    network = NetworkShape(
        blocks=tuple((block.rows, len(block.features)) for block in layout.blocks),
        actions=len(action_space(env).box) if head == "discrete" else 2,
        head=head,
        hidden=sizes.hidden,
        encoder=sizes.encoder,
        memory=sizes.memory,
        memory_width=sizes.memory_width if sizes.memory != "none" else 0,
        lists=tuple((block.rows, features_of(block)) for block in layout.lists),
        sectors=layout.sectors if layout.lists else 0,
    )
    return Architecture(layout.id, layout.digest, env.dynamics, env.compat.dynamics, env.num_goals, network)


def save_checkpoint(
    path: Path,
    network: ActorCritic,
    architecture: Architecture,
    *,
    step: int = 0,
    epoch: int = 0,
    run: str = "",
    overwrite: bool = False,
) -> str:
    """Write a network's weights and return their content digest. Raises AlreadyThereError as `save_weights`."""
    plain = getattr(network, "_orig_mod", network)  # what torch.compile has wrapped (E34)
    arrays = {name: tensor.detach().cpu().numpy() for name, tensor in plain.state_dict().items()}
    described = asdict(architecture)
    described["network"] = architecture.network.described()
    meta = {"kind": CHECKPOINT_KIND, "step": step, "epoch": epoch, "run": run, "architecture": described}
    return save_weights(path, arrays, meta, overwrite=overwrite)


def import_weights(path: Path, foreign: Weights, architecture: Architecture, where: str) -> str:
    """Write foreign tensors as a checkpoint and return its digest.

    Raises CheckpointError, with both sides, where they are not those of the architecture; AlreadyThereError as
    `save_weights`.
    """
    _check_tensors(where, architecture.network, foreign)
    described = asdict(architecture) | {"network": architecture.network.described()}
    meta = {"kind": CHECKPOINT_KIND, "step": 0, "epoch": 0, "run": "imported", "architecture": described}
    return save_weights(path, foreign.arrays, meta)


def load_checkpoint(path: Path) -> Checkpoint:
    """Read and check a checkpoint file, without importing torch.

    Raises CheckpointError when it is not a driver checkpoint, IntegrityError when it is damaged.
    """
    weights = load_weights(path)
    meta = weights.meta
    if meta.get("kind") != CHECKPOINT_KIND:
        raise CheckpointError(f"{path}: is a checkpoint of kind {meta.get('kind')!r}, expected {CHECKPOINT_KIND!r}.")
    try:
        architecture = _architecture(meta["architecture"])
        checkpoint = Checkpoint(
            path, architecture, weights.arrays, weights.digest, int(meta["step"]), int(meta["epoch"]), str(meta["run"])
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: incomplete metadata ({type(error).__name__}: {error}).") from None
    _check_tensors(path, architecture.network, weights)
    return checkpoint


def read_architecture(path: Path) -> dict[str, Any]:
    """The dotted keys a checkpoint fixes in a suite. Raises as `load_checkpoint`."""
    return load_checkpoint(path).architecture.settings()


def _architecture(described: Any) -> Architecture:
    if set(described) != {item.name for item in fields(Architecture)}:
        raise ValueError(f"architecture has fields {sorted(described)}")
    return Architecture(**{**described, "network": shape_from(described["network"])})


def _check_tensors(path: Path | str, shape: NetworkShape, weights: Weights) -> None:
    expected = tensor_shapes(shape)
    found = {name: array.shape for name, array in weights.arrays.items()}
    differ = [
        f"{name} is {found.get(name, 'absent')}, expected {expected.get(name, 'absent')}"
        for name in sorted(expected.keys() | found.keys())
        if expected.get(name) != found.get(name)
    ]
    wrong = [name for name, array in weights.arrays.items() if array.dtype != np.float32]
    if differ or wrong:
        differ += [f"{name} is not float32" for name in wrong]
        raise CheckpointError(f"{path}: its tensors are not those of its architecture: {listed(differ)}.")
    if bad := [name for name, array in weights.arrays.items() if not np.isfinite(array).all()]:
        raise CheckpointError(f"{path}: not finite: {listed(bad)}. The training that wrote it had diverged.")


def _sizes(shape: NetworkShape) -> NetworkSettings:
    return NetworkSettings(
        hidden=shape.hidden,
        encoder=shape.encoder,
        memory=shape.memory,
        memory_width=shape.memory_width or 1,
    )


class CheckpointPolicy:
    """Drives with a checkpoint.

    selection    "deterministic": best entry of the table, or the mean; "sample": drawn from the row's own stream;
                 "expected": mean over the table, for a discrete head in a continuous world
    infer_batch  rows of one inference call; the last one is padded, so every call has the same shape

    Raises CheckpointError, with both sides, when the world or the selection does not fit the checkpoint.
    """

    def __init__(self, checkpoint: Checkpoint, env: EnvSettings, selection: ActionSelection, infer_batch: int) -> None:
        from skidpad.simulation.actions import action_space

        self._shape = checkpoint.architecture.network
        self._action_type = env.action_type
        self._infer_batch = infer_batch
        self._check_world(checkpoint, env, selection)
        self._space = action_space(env)
        self.spec = PolicySpec(
            name="policy", layout=env.layout, action_type=env.action_type, needs_roads=bool(self._shape.lists)
        )
        self.digest = checkpoint.digest
        self.network = self._build(checkpoint)
        self._lists: Lists | None = None
        self.thought: Thought | None = None

    @staticmethod
    def _check_world(checkpoint: Checkpoint, env: EnvSettings, selection: ActionSelection) -> None:
        wanted = checkpoint.architecture
        here = architecture_for(env, _sizes(wanted.network), head=wanted.network.head)
        differ = [
            f"{item.name} is {getattr(wanted, item.name)!r} in the file, {getattr(here, item.name)!r} in the world"
            for item in fields(Architecture)
            if getattr(wanted, item.name) != getattr(here, item.name)
        ]
        head = wanted.network.head
        if head == "continuous" and env.action_type == "discrete":
            differ.append("the checkpoint gives continuous actions, the world takes an index")
        if selection == "expected" and (head, env.action_type) != ("discrete", "continuous"):
            differ.append(
                f"action_selection = 'expected' averages a table of discrete actions in a continuous world; the "
                f"checkpoint's head is {head}, the world is {env.action_type}"
            )
        if differ:
            raise CheckpointError(f"{checkpoint.path}: does not fit this evaluation: {'; '.join(differ)}.")

    def _build(self, checkpoint: Checkpoint) -> ActorCritic:
        import torch

        from skidpad.policies.network import ActorCritic

        with torch.random.fork_rng(devices=[]):  # building draws initial weights; the caller's generator stays as it is
            network = ActorCritic(self._shape, initialise=False)
        network.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in checkpoint.arrays.items()})
        return network.eval()

    def initial_state(self, rows: int) -> F32 | None:
        """(rows, H) f32 zeros, or None for a network without memory."""
        return np.zeros((rows, self._shape.state_width), np.float32) if self._shape.state_width else None

    def act(
        self,
        observation: F32,
        state: F32 | None,
        reset: NDArray[np.bool_],
        *,
        selection: ActionSelection,
        streams: RowStreams,
        simulator: Any = None,
    ) -> tuple[NDArray[Any], F32 | None]:
        """As `Policy.act`: (rows,) i32 in a discrete world, (rows, 2) f32 in [-1, 1] in a continuous one.

        Raises ProtocolError for references to other maps than those of the simulator.
        """
        if self._shape.lists and (self._lists is None or self._lists.roads is not simulator.roads):
            from skidpad.policies.lists import Lists

            self._lists = Lists(simulator.roads, self.network.lists)
        if state is not None:
            state = np.where(reset[:, None], np.float32(0), state)
        out, value, state = self._infer(observation, state)
        self.thought = Thought(value[:, None], self._distribution(out))
        if self._shape.head == "continuous":
            return self._continuous(out, selection, streams), state
        if selection == "expected":
            return self._expected(out), state
        index = np.argmax(out, axis=1) if selection == "deterministic" else _draw(out, streams.uniform(1)[:, 0])
        if self._action_type == "discrete":
            return self._space.split(index.astype(np.int32)), state
        return self._space.box[index], state

    def _distribution(self, out: F32) -> F32:
        """What the head says, as `Thought.distribution`."""
        if self.network.log_std is None:
            return _probabilities(out)
        deviation = np.exp(_array(self.network.log_std.detach()))
        return np.concatenate([out, np.broadcast_to(deviation, out.shape)], axis=1)

    def _infer(self, observation: F32, state: F32 | None) -> tuple[F32, F32, F32 | None]:
        import torch

        rows, size = len(observation), self._infer_batch
        out, value = np.empty((rows, self._shape.actions), np.float32), np.empty(rows, np.float32)
        memory = None if state is None else np.empty_like(state)
        padded = np.zeros((size, self._shape.observation), np.float32)
        padded_state = None if state is None else np.zeros((size, self._shape.state_width), np.float32)
        with _inference(self.network):
            for start in range(0, rows, size):
                part = slice(start, min(start + size, rows))
                count = part.stop - part.start
                padded[:count], padded[count:] = observation[part], 0
                hidden = None
                if state is not None and padded_state is not None:
                    padded_state[:count], padded_state[count:] = state[part], 0
                    hidden = torch.from_numpy(padded_state)
                parameters, expected, hidden = self.network(torch.from_numpy(padded), hidden, self._lists)
                out[part], value[part] = _array(parameters)[:count], _array(expected)[:count]
                if memory is not None and hidden is not None:
                    memory[part] = _array(hidden)[:count]
        return out, value, memory

    def _continuous(self, mean: F32, selection: ActionSelection, streams: RowStreams) -> F32:
        if selection == "deterministic":
            return mean
        assert self.network.log_std is not None
        deviation = np.exp(_array(self.network.log_std.detach()))
        return np.clip(mean + deviation * _normal(streams.uniform(4)), -1, 1).astype(np.float32)

    def _expected(self, logits: F32) -> F32:
        # Row by row in one order: a matrix product may add in another order for another number of rows.
        # The mean is physical: in a box whose sides differ, the mean of its points means something else.
        return self._space.unit(np.einsum("rk,ka->ra", _probabilities(logits), self._space.table))


def _array(tensor: Tensor) -> F32:
    array: F32 = tensor.numpy()
    return array


def _probabilities(logits: F32) -> F32:
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True), np.float32)


def _draw(logits: F32, uniform: F32) -> NDArray[np.int64]:
    """Index of each row's draw by inversion: the first whose cumulated probability is above the uniform number."""
    cumulated = np.cumsum(_probabilities(logits).astype(np.float64), axis=1)
    cumulated /= cumulated[:, -1:]
    return np.asarray((cumulated <= uniform[:, None]).sum(axis=1).clip(max=logits.shape[1] - 1))


def _normal(uniform: F32) -> F32:
    """Two standard normal numbers per row from four uniform ones (Box and Muller 1958).

    uniform  (rows, 4)  f32 in [0, 1)
    returns  (rows, 2)  f32
    """
    radius = np.sqrt(-2 * np.log1p(-uniform[:, :2].astype(np.float64)))
    return np.asarray(radius * np.cos(2 * np.pi * uniform[:, 2:]), np.float32)


@contextmanager
def _inference(network: torch.nn.Module) -> Iterator[None]:
    """One thread, no gradients, every submodule in evaluation mode; all of it given back afterwards, module by module
    (E55), also when inference raises."""
    import torch

    threads = torch.get_num_threads()
    trained = [module for module in network.modules() if module.training]
    if threads != 1:
        torch.set_num_threads(1)
    try:
        for module in trained:
            module.training = False
        with torch.inference_mode():
            yield
    finally:
        for module in trained:
            module.training = True
        if threads != 1:
            torch.set_num_threads(threads)
