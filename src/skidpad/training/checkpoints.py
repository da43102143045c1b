"""Checkpoints of a training run: what drives, beside what is needed to go on learning as if nothing had happened.

    checkpoints/epoch_<N>/policy.safetensors    weights and architecture: all that `--checkpoint` reads
    checkpoints/epoch_<N>/trainer.safetensors   optimiser, random generators, worlds, memories
    checkpoints/latest.json                     which one is the newest, replaced last

A folder gets its name when both files are whole, the pointer follows, and only then are old ones deleted: a kill at any
write leaves a checkpoint that loads.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from skidpad.artifacts.digests import canonical_json
from skidpad.artifacts.files import new_folder, parse_json, replace
from skidpad.artifacts.weights import Weights, load_weights, save_weights
from skidpad.errors import AlreadyThereError, CheckpointError, SkidpadError
from skidpad.policies.checkpoint import Architecture, load_checkpoint, save_checkpoint
from skidpad.policies.network import ActorCritic

TRAINER_KIND = "driver-training/1"
POINTER_SCHEMA = "skidpad.latest/1"
POLICY, TRAINER = "policy.safetensors", "trainer.safetensors"
MAX_POINTER_BYTES = 1 << 16


@dataclass(frozen=True)
class Counters:
    """How far training has come.

    epoch  updates made
    step   live agent-steps driven, of all ranks
    """

    epoch: int = 0
    step: int = 0


class Checkpoints:
    """The checkpoints of one run.

    folder   `checkpoints/` of the run folder
    run      identity of the training, which every file carries
    """

    def __init__(self, folder: Path, run: str, *, keep_last: int, keep_every: int) -> None:
        self.folder, self.run = folder, run
        self._keep_last, self._keep_every = keep_last, keep_every
        self.best: tuple[float, int] | None = None

    def policy(self, epoch: int) -> Path:
        """The weights of an epoch."""
        return self.folder / name_of(epoch) / POLICY

    def save(
        self,
        counters: Counters,
        network: ActorCritic,
        architecture: Architecture,
        arrays: Mapping[str, NDArray[Any]],
        said: Mapping[str, Any],
    ) -> Path:
        """Write a checkpoint and return the file of its weights; one that is there already is left as it is.

        arrays  the trainer's state by name
        said    what else it says of itself, JSON values
        """
        target = self.folder / name_of(counters.epoch)
        if not target.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            with new_folder(target) as folder:
                digest = save_checkpoint(
                    folder / POLICY, network, architecture, step=counters.step, epoch=counters.epoch, run=self.run
                )
                meta = {"kind": TRAINER_KIND, "run": self.run, "policy": digest, "best": self.best, **said}
                save_weights(folder / TRAINER, arrays, meta)
        pointer = {"schema": POINTER_SCHEMA, "epoch": counters.epoch}
        replace(self.folder / "latest.json", canonical_json(pointer).encode())
        self._drop_old()
        return target / POLICY

    def note_best(self, value: float, epoch: int) -> None:
        """This epoch's checkpoint is the best one so far, and stays."""
        self.best = (value, epoch)
        self._drop_old()

    def _drop_old(self) -> None:
        epochs = self.epochs()
        kept = set(epochs[-self._keep_last :]) | ({self.best[1]} if self.best else set())
        kept |= {epoch for epoch in epochs if self._keep_every and epoch % self._keep_every == 0}
        for epoch in set(epochs) - kept:
            shutil.rmtree(self.folder / name_of(epoch))

    def epochs(self) -> list[int]:
        """Of the checkpoints that are there, ascending."""
        names = [path.name for path in self.folder.glob("epoch_*") if path.name[6:].isdigit()]
        return sorted(int(name[6:]) for name in names)

    def newest(self, say: Callable[[str], None]) -> tuple[Path, Weights, Weights] | None:
        """The newest whole checkpoint: its folder, its trainer's state and its weights. What the pointer names comes
        first; where that does not load, or there is no pointer, the one before it, and `say` tells why.

        Raises CheckpointError for a checkpoint of another training.
        """
        candidates = self.epochs()[::-1]
        try:
            pointed = self._pointed()
        except (OSError, SkidpadError, ValueError, KeyError, TypeError) as error:
            pointed = None
            if candidates:
                say(f"{self.folder / 'latest.json'}: does not say which checkpoint is the newest ({error})")
        if pointed is not None:
            candidates = [epoch for epoch in candidates if epoch <= pointed]
        for epoch in candidates:
            folder = self.folder / name_of(epoch)
            try:
                trainer, weights = load_weights(folder / TRAINER), load_weights(folder / POLICY)
                load_checkpoint(folder / POLICY)
                if trainer.meta.get("policy") != weights.digest:
                    raise CheckpointError(f"{folder}: {TRAINER} belongs to other weights than {POLICY}.")
            except SkidpadError as error:
                say(f"passed over: {error}")
                continue
            if trainer.meta.get("run") != self.run:
                raise CheckpointError(
                    f"{folder}: is of training {trainer.meta.get('run')}, these settings and scenes are training "
                    f"{self.run}. Restore the settings, or choose another --out."
                )
            return folder, trainer, weights
        return None

    def _pointed(self) -> int:
        document = parse_json((self.folder / "latest.json").read_bytes()[:MAX_POINTER_BYTES])
        if document["schema"] != POINTER_SCHEMA:
            raise ValueError(f"schema {document['schema']!r}")
        return int(document["epoch"])

    def refuse_if_any(self) -> None:
        """Raises AlreadyThereError where training has begun: it is resumed, or begun elsewhere."""
        if epochs := self.epochs():
            raise AlreadyThereError(
                f"{self.folder}: holds checkpoints up to epoch {epochs[-1]}. Go on with --resume, or choose another "
                "--out."
            )


def name_of(epoch: int) -> str:
    """The folder of an epoch's checkpoint."""
    return f"epoch_{epoch:07d}"


def optimiser_arrays(network: ActorCritic, optimiser: torch.optim.Optimizer) -> dict[str, NDArray[Any]]:
    """The optimiser's state by parameter: `optimiser.<parameter>.<quantity>`."""
    found: dict[str, NDArray[Any]] = {}
    for name, parameter in network.named_parameters():
        for quantity, value in optimiser.state.get(parameter, {}).items():
            found[f"optimiser.{name}.{quantity}"] = torch.as_tensor(value).detach().cpu().numpy().copy()
    return found


def restore_optimiser(
    network: ActorCritic, optimiser: torch.optim.Optimizer, arrays: Mapping[str, NDArray[Any]]
) -> None:
    """The other way round."""
    for name, parameter in network.named_parameters():
        prefix = f"optimiser.{name}."
        state = {key[len(prefix) :]: value for key, value in arrays.items() if key.startswith(prefix)}
        for quantity, value in state.items():
            tensor = torch.from_numpy(value.copy())
            optimiser.state[parameter][quantity] = tensor if quantity == "step" else tensor.to(parameter.device)


def bytes_array(data: bytes) -> NDArray[np.uint8]:
    """Bytes as a tensor can hold them."""
    return np.frombuffer(data, np.uint8).copy()
