"""Mappers and writers on disk.

Both are checkpoints of `artifacts/weights.py`: safetensors with one metadata key. A mapper's content hash is that
of its {carrier, write_rule} state; notes about its training change the file, not the hash. A writer is bound to the
mapper, renderer, feature table and budget that it was taught for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from skidpad.artifacts.digests import digest_bytes, digest_value
from skidpad.artifacts.files import create, read_bytes
from skidpad.artifacts.weights import decode_weights, describe_weights, encode_weights
from skidpad.errors import CheckpointError, FormatError, IntegrityError, listed
from skidpad.streaming.carrier import FrameKind
from skidpad.streaming.completion import Completion, CompletionUNet, Harmonic, Layer, MeanField
from skidpad.streaming.policies import FEATURE_SCHEMA
from skidpad.streaming.presets import Preset, preset_named
from skidpad.streaming.renderer import RENDERER
from skidpad.streaming.write_rule import Gate

MAPPER_SCHEMA = "skidpad.mapper/1"
WRITER_SCHEMA = "skidpad.writer/1"
MAX_BYTES = 64 << 20
COMPLETIONS = ("unet", "harmonic")
_MAPPER_KEYS = {"schema", "preset", "config", "content_hash", "controls_hash", "training", "code"}
_WRITER_KEYS = {"schema", "content_hash", "binding", "teacher"}


@dataclass(frozen=True)
class RenderProtocol:
    """How every view of a run is rendered; `MeasurementRenderer` has the ranges."""

    samples: int = 96
    ray_chunk: int = 2048
    renderer: str = RENDERER

    def to_json(self) -> dict[str, Any]:
        return {"renderer": self.renderer, "samples": self.samples, "ray_chunk": self.ray_chunk}


class Carrier(torch.nn.Module):
    """What carries a state from arrival to arrival: the preset, the frame's axes, and the completion.

    completion  "unet" or "harmonic"
    frame       "anchor" or "world", as `carrier.measured_frame`
    """

    def __init__(self, preset: Preset, completion: str = "harmonic", frame: FrameKind = "anchor") -> None:
        super().__init__()
        if completion not in COMPLETIONS or frame not in ("anchor", "world"):
            raise CheckpointError(
                f"completion {completion!r}, frame {frame!r}: expected {' or '.join(COMPLETIONS)}, anchor or world."
            )
        self.preset = preset
        self.frame: FrameKind = frame
        self.network = CompletionUNet() if completion == "unet" else None

    @property
    def config(self) -> dict[str, str]:
        """Everything but the preset's name that the tensors follow from."""
        return {"completion": "harmonic" if self.network is None else "unet", "frame": self.frame}

    def completion(self) -> Completion:
        """What makes layers."""
        return self.network or Harmonic()


@dataclass(frozen=True, eq=False)
class Mapper:
    """A loaded mapper: modules in evaluation mode on their device, gradients off.

    controls  tensors of the controls: "distance", "colour", "confidence" of the mean field, or nothing
    info      JSON values: preset, config, content_hash, controls_hash, file_sha256, training, code
    """

    carrier: Carrier
    write_rule: Gate
    info: Mapping[str, Any]
    controls: Mapping[str, Tensor]

    def mean_field(self) -> MeanField:
        """The completion of the control MEAN_FIELD. Raises CheckpointError when the file brought none."""
        if not self.controls:
            raise CheckpointError(
                "control MEAN_FIELD needs a mapper with controls.*, this one has none: "
                f"its completion is {self.info['config']['completion']}."
            )
        return MeanField(Layer(**self.controls), self.carrier.completion())


def content_hash(carrier: Carrier, write_rule: Gate) -> str:
    """Hash of the slow weights, from the tensors as they are now, and of the config that gives them a meaning."""
    return digest_value(
        {
            "carrier": {"preset": carrier.preset.name, "config": carrier.config, "state": carrier.state_dict()},
            "write_rule": write_rule.state_dict(),
        },
        "mapper",
    )


def _frozen(module: torch.nn.Module, device: torch.device) -> None:
    module.eval().to(device)
    for parameter in module.parameters():
        parameter.requires_grad_(False)


def make_mapper(carrier: Carrier, write_rule: Gate, device: str = "cpu", **info: Any) -> Mapper:
    """A mapper of modules in memory, which are put in evaluation mode; `info` as in `Mapper`, where known."""
    controls = info.pop("controls", {})
    for module in (carrier, write_rule):
        _frozen(module, torch.device(device))
    known = {"preset": carrier.preset.name, "config": carrier.config, "content_hash": content_hash(carrier, write_rule)}
    return Mapper(carrier, write_rule, {**known, "file_sha256": None, **info}, controls)


def save_mapper(
    path: Path,
    carrier: Carrier,
    write_rule: Gate,
    *,
    controls: Mapping[str, Tensor] | None = None,
    training: Mapping[str, Any] | None = None,
    code: Mapping[str, Any] | None = None,
) -> str:
    """Write a mapper file and return its content hash. Raises AlreadyThereError when the file exists.

    controls  the mean field: distance (x, y, z), colour (3, x, y, z), confidence (x, y, z); none for a harmonic mapper
    """
    arrays = {f"carrier.{name}": tensor for name, tensor in carrier.state_dict().items()}
    arrays |= {f"write_rule.{name}": tensor for name, tensor in write_rule.state_dict().items()}
    arrays |= {f"controls.{name}": tensor for name, tensor in (controls or {}).items()}
    digest = content_hash(carrier, write_rule)
    meta = {
        "schema": MAPPER_SCHEMA,
        "preset": carrier.preset.name,
        "config": carrier.config,
        "content_hash": digest,
        "controls_hash": _controls_hash(controls or {}),
        "training": dict(training or {}),
        "code": dict(code or {}),
    }
    create(path, encode_weights({name: _array(tensor) for name, tensor in arrays.items()}, meta)[0])
    return digest


def _controls_hash(controls: Mapping[str, Tensor]) -> str | None:
    return digest_value(dict(controls), "controls") if controls else None


def _array(tensor: Tensor) -> NDArray[Any]:
    array: NDArray[Any] = tensor.detach().cpu().numpy()
    return array


def _read(path: Path, schema: str, keys: set[str]) -> tuple[bytes, Mapping[str, Any]]:
    """Bytes of a file and its metadata, before any tensor is looked at."""
    try:
        data = read_bytes(path, MAX_BYTES)
    except (OSError, FormatError) as error:
        raise CheckpointError(f"{path}: cannot be read ({error}), expected a file of schema {schema}.") from None
    meta = describe_weights(data, str(path))
    if meta.get("schema") != schema:
        raise CheckpointError(f"{path}: schema {meta.get('schema')!r}, expected {schema!r}.")
    if set(meta) != keys:
        missing, extra = sorted(keys - set(meta)), sorted(set(meta) - keys)
        raise CheckpointError(
            f"{path}: missing keys {listed(missing) or 'none'}, unexpected {listed(extra) or 'none'}."
        )
    return data, meta


def _checked_tensors(
    data: bytes, expected: Mapping[str, tuple[int, ...]], optional: Mapping[str, tuple[int, ...]], path: Path
) -> dict[str, Tensor]:
    """Tensors of a file by name, if they are exactly the expected ones (with all optional ones or none)."""
    arrays = decode_weights(data, str(path)).arrays
    wanted = {**expected, **optional} if set(arrays) & set(optional) else dict(expected)
    found = {name: array.shape for name, array in arrays.items()}
    differ = [
        f"{name} is {found.get(name, 'absent')}, expected {wanted.get(name, 'absent')}"
        for name in sorted(wanted.keys() | found.keys())
        if wanted.get(name) != found.get(name)
    ]
    differ += [
        f"{name} is {array.dtype}, expected float32" for name, array in arrays.items() if array.dtype != np.float32
    ]
    if differ:
        raise CheckpointError(f"{path}: its tensors are not those of its config: {listed(differ)}.")
    if bad := [name for name, array in arrays.items() if not np.isfinite(array).all()]:
        raise CheckpointError(f"{path}: not finite: {listed(bad)}. The training that wrote it had diverged.")
    return {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _shapes(module: torch.nn.Module, prefix: str) -> dict[str, tuple[int, ...]]:
    return {prefix + name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}


def load_mapper(path: Path, device: str = "cpu") -> Mapper:
    """The mapper of a file.

    Raises CheckpointError when it is not one (absent, a pickle, another schema, tensors that do not follow from its
    config), IntegrityError when it was one and is damaged.
    """
    data, meta = _read(path, MAPPER_SCHEMA, _MAPPER_KEYS)
    preset, config = preset_named(meta["preset"], str(path)), meta["config"]
    if not isinstance(config, dict) or set(config) != {"completion", "frame"}:
        raise CheckpointError(f"{path}: config {config!r}, expected completion and frame.")
    with torch.random.fork_rng(devices=[]):  # building draws initial weights; the caller's generator stays as it is
        carrier, write_rule = Carrier(preset, config["completion"], config["frame"]), Gate()
    expected = _shapes(carrier, "carrier.") | _shapes(write_rule, "write_rule.")
    mean_field = {}
    if config["completion"] == "unet":
        half = preset.half
        mean_field = {"distance": half, "colour": (3, *half), "confidence": half}
    optional = {f"controls.{name}": shape for name, shape in mean_field.items()}
    tensors = _checked_tensors(data, expected, optional, path)
    carrier.load_state_dict(_part(tensors, "carrier."))
    write_rule.load_state_dict(_part(tensors, "write_rule."))
    controls = _part(tensors, "controls.")
    for name, found in (("content", content_hash(carrier, write_rule)), ("controls", _controls_hash(controls))):
        if meta[f"{name}_hash"] != found:
            raise IntegrityError(
                f"{path}: {name} hash {found}, the file says {meta[f'{name}_hash']}. Nothing was loaded; restore it."
            )
    info = {key: value for key, value in meta.items() if key != "schema"} | {"file_sha256": digest_bytes(data)}
    controls = {name: tensor.to(device) for name, tensor in controls.items()}
    return make_mapper(carrier, write_rule, device, controls=controls, **info)


@dataclass(frozen=True)
class Binding:
    """What a writer was taught for."""

    model_content_hash: str
    feature_schema: str
    render_protocol: RenderProtocol
    max_units: float
    writer_units: int

    def to_json(self) -> dict[str, Any]:
        """As writer files hold it."""
        return {
            "model_content_hash": self.model_content_hash,
            "feature_schema": self.feature_schema,
            "render_protocol": self.render_protocol.to_json(),
            "budget_protocol": {"max_units": self.max_units, "writer_units": self.writer_units},
        }


def binding_for(mapper: Mapper, render: RenderProtocol, max_units: float, writer_units: int) -> Binding:
    """The binding of a writer to a mapper and a run's settings."""
    return Binding(mapper.info["content_hash"], FEATURE_SCHEMA, render, max_units, writer_units)


@dataclass(frozen=True, eq=False)
class LoadedWriter:
    """A writer: its network in evaluation mode, the price of a unit, and JSON values for the records."""

    network: Any
    price: float
    info: Mapping[str, Any]


def save_writer(path: Path, network: torch.nn.Module, binding: Binding, teacher: Mapping[str, Any]) -> str:
    """Write a writer file and return its content hash.

    teacher  {data_digest, scene_ids, price}
    Raises AlreadyThereError when the file exists.
    """
    digest = digest_value(network.state_dict(), "writer")
    meta = {"schema": WRITER_SCHEMA, "content_hash": digest, "binding": binding.to_json(), "teacher": dict(teacher)}
    arrays = {f"writer.{name}": _array(tensor) for name, tensor in network.state_dict().items()}
    create(path, encode_weights(arrays, meta)[0])
    return digest


def load_writer(
    path: Path, mapper: Mapper, render: RenderProtocol, max_units: float, device: str = "cpu"
) -> LoadedWriter:
    """The writer of a file, if it was taught for this mapper, renderer, feature table and budget.

    Checked twice: from the header everything known without the network, before a tensor is read; then the whole
    binding with the units that the built network declares. Raises CheckpointError with what the file is bound to and
    what the run has; IntegrityError for a damaged file.
    """
    from skidpad.streaming.writer import Writer

    data, meta = _read(path, WRITER_SCHEMA, _WRITER_KEYS)
    _check_binding(path, meta["binding"], binding_for(mapper, render, max_units, 0).to_json(), with_units=False)
    price = _price(path, meta["teacher"])
    with torch.random.fork_rng(devices=[]):
        network = Writer()
    tensors = _checked_tensors(data, _shapes(network, "writer."), {}, path)
    network.load_state_dict(_part(tensors, "writer."))
    found = digest_value(network.state_dict(), "writer")
    if found != meta["content_hash"]:
        raise IntegrityError(f"{path}: content hash {found}, the file says {meta['content_hash']}. Restore the file.")
    actual = binding_for(mapper, render, max_units, network.units).to_json()
    _check_binding(path, meta["binding"], actual, with_units=True)
    _frozen(network, torch.device(device))
    info = {"file_sha256": digest_bytes(data), "content_hash": found, "binding": meta["binding"]}
    return LoadedWriter(network, price, info)


def _price(path: Path, teacher: Any) -> float:
    if not isinstance(teacher, dict) or set(teacher) != {"data_digest", "scene_ids", "price"}:
        raise CheckpointError(f"{path}: teacher must hold data_digest, scene_ids and price.")
    price = teacher["price"]
    if not _number(price) or price < 0:
        raise CheckpointError(f"{path}: price {price!r}, expected a finite number, 0 or more.")
    return float(price)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _same(bound: Any, actual: Any) -> bool:
    # max_units may be spelled 1000000 or 1e6; everything else has one type.
    if isinstance(actual, float):
        return _number(bound) and float(bound) == actual
    return type(bound) is type(actual) and bool(bound == actual)


def _check_binding(path: Path, bound: Any, actual: Mapping[str, Any], *, with_units: bool) -> None:
    differ = []
    for name, value in actual.items():
        held = bound.get(name, "nothing") if isinstance(bound, dict) else "nothing"
        if not isinstance(value, dict):
            if not _same(held, value):
                differ.append(f"{name} is {held!r}, the run has {value!r}")
            continue
        for key, inner in value.items():
            if key == "writer_units" and not with_units:
                continue
            inner = float(inner) if key == "max_units" else inner
            found = held.get(key, "nothing") if isinstance(held, dict) else "nothing"
            if not _same(found, inner):
                differ.append(f"{name}.{key} is {found!r}, the run has {inner!r}")
    if differ:
        raise CheckpointError(f"{path}: this writer was taught for something else: {listed(differ, 9)}.")
