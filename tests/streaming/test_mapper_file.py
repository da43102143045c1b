"""Mapper and writer files: strict, bound, hashed twice."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from mapper_world import IDS, RENDER, TINY, frames, known_preset, run_episode, single_thread, tiny_mapper

from skidpad.artifacts.weights import decode_weights, encode_weights
from skidpad.errors import AlreadyThereError, CheckpointError, IntegrityError
from skidpad.streaming import mapper_file
from skidpad.streaming.budget import BudgetProtocol
from skidpad.streaming.mapper_file import (
    MAPPER_SCHEMA,
    WRITER_SCHEMA,
    Carrier,
    Mapper,
    binding_for,
    content_hash,
    load_mapper,
    load_writer,
    make_mapper,
    save_mapper,
    save_writer,
)
from skidpad.streaming.policies import make_policy
from skidpad.streaming.presets import PRESETS
from skidpad.streaming.runner import MapperRunner
from skidpad.streaming.write_rule import Gate
from skidpad.streaming.writer import Writer

TEACHER = {"data_digest": "d", "scene_ids": ["a", "b"], "price": 1e-9}


@pytest.fixture(autouse=True, scope="module")
def _preset():
    with known_preset(), single_thread():
        yield


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, Mapper]:
    mapper = tiny_mapper("unet")
    half = TINY.half
    controls = {"distance": torch.zeros(half), "colour": torch.ones(3, *half), "confidence": torch.ones(half)}
    path = tmp_path / "mapper.safetensors"
    digest = save_mapper(path, mapper.carrier, mapper.write_rule, controls=controls, training={"steps": 3})
    assert digest == mapper.info["content_hash"]
    return path, mapper


def rewritten(path: Path, out: Path, change: Any) -> Path:
    """The file with its arrays and metadata changed, under a digest that holds again."""
    weights = decode_weights(path.read_bytes(), str(path))
    arrays, meta = dict(weights.arrays), copy.deepcopy(dict(weights.meta))
    change(arrays, meta)
    out.write_bytes(encode_weights(arrays, meta)[0])
    return out


def test_schema_ids() -> None:
    """M1: the schema ids of mapper and writer files are pinned: a change is a new number."""
    assert (MAPPER_SCHEMA, WRITER_SCHEMA) == ("skidpad.mapper/1", "skidpad.writer/1")


def test_round_trip(saved: tuple[Path, Mapper]) -> None:
    """M35, M36: a loaded mapper has the weights of the saved one, in evaluation mode, without gradients; info is JSON
    with both hashes; the caller's random generator does not move."""
    path, mapper = saved
    state = torch.random.get_rng_state()
    loaded = load_mapper(path)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert content_hash(loaded.carrier, loaded.write_rule) == mapper.info["content_hash"]
    assert json.loads(json.dumps(loaded.info)) == loaded.info
    assert len(loaded.info["file_sha256"]) == 64
    assert loaded.info["training"] == {"steps": 3}
    for module in (loaded.carrier, loaded.write_rule):
        assert not any(part.training for part in module.modules())
        assert not any(parameter.requires_grad for parameter in module.parameters())
    assert loaded.mean_field().stored.colour.shape == (3, *TINY.half)


def test_two_hashes(saved: tuple[Path, Mapper], tmp_path: Path) -> None:
    """M34, M35: the same weights with another note have the same content hash and another file hash; saved twice, equal
    bytes; another preset or axes of the frame are another content."""
    path, mapper = saved
    again, noted = tmp_path / "again", tmp_path / "noted"
    for out, training in ((again, {"steps": 3}), (noted, {"steps": 4})):
        save_mapper(out, mapper.carrier, mapper.write_rule, controls=load_mapper(path).controls, training=training)
    assert again.read_bytes() == path.read_bytes()
    infos = [load_mapper(one).info for one in (path, noted)]
    assert infos[0]["content_hash"] == infos[1]["content_hash"]
    assert infos[0]["file_sha256"] != infos[1]["file_sha256"]
    hashes = {content_hash(carrier, Gate()) for carrier in (Carrier(TINY), Carrier(TINY, frame="world"))}
    hashes.add(content_hash(Carrier(PRESETS["embedded"]), Gate()))
    assert len(hashes) == 3
    with pytest.raises(AlreadyThereError):
        save_mapper(path, mapper.carrier, mapper.write_rule)


def _drop(arrays: dict[str, Any], meta: Any) -> None:
    del arrays["write_rule.layers.0.bias"]


def _add(arrays: dict[str, Any], meta: Any) -> None:
    arrays["carrier.extra"] = np.zeros(1, np.float32)


def _reshape(arrays: dict[str, Any], meta: Any) -> None:
    arrays["write_rule.layers.0.weight"] = arrays["write_rule.layers.0.weight"].T.copy()


def _double(arrays: dict[str, Any], meta: Any) -> None:
    arrays["write_rule.layers.0.bias"] = arrays["write_rule.layers.0.bias"].astype(np.float64)


def _nan(arrays: dict[str, Any], meta: Any) -> None:
    arrays["write_rule.layers.0.bias"] = np.full(32, np.nan, np.float32)


def _half_controls(arrays: dict[str, Any], meta: Any) -> None:
    del arrays["controls.colour"]


def _newer(arrays: Any, meta: Any) -> None:
    meta["schema"] = "skidpad.mapper/2"


def _extra_key(arrays: Any, meta: Any) -> None:
    meta["note"] = "x"


def _other_preset(arrays: Any, meta: Any) -> None:
    meta["preset"] = "embeded"


def _other_config(arrays: Any, meta: Any) -> None:
    meta["config"]["completion"] = "harmonic"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_drop, "write_rule.layers.0.bias is absent"),
        (_add, "carrier.extra"),
        (_reshape, "write_rule.layers.0.weight"),
        (_double, "float64"),
        (_nan, "not finite"),
        (_half_controls, "controls.colour is absent"),
        (_newer, "'skidpad.mapper/2', expected 'skidpad.mapper/1'"),
        (_extra_key, "unexpected note"),
        (_other_preset, "did you mean 'embedded'"),
        (_other_config, "tensors are not those of its config"),
    ],
)
def test_strict_loading(saved: tuple[Path, Mapper], tmp_path: Path, change: Any, message: str) -> None:
    """M35, F32: missing, extra, reshaped, retyped and NaN tensors, another schema, key, preset or config: refused,
    naming what differs."""
    with pytest.raises(CheckpointError, match=message):
        load_mapper(rewritten(saved[0], tmp_path / "changed", change))


@pytest.mark.parametrize("key", ["content_hash", "controls_hash"])
def test_hash_that_does_not_hold(saved: tuple[Path, Mapper], tmp_path: Path, key: str) -> None:
    """M35, F30: a content hash that is not that of the tensors is exit 3, though the file's own digest holds."""

    def lie(arrays: Any, meta: Any) -> None:
        meta[key] = "0" * 64

    with pytest.raises(IntegrityError) as caught:
        load_mapper(rewritten(saved[0], tmp_path / "changed", lie))
    assert caught.value.exit_code == 3


def test_damaged_files(saved: tuple[Path, Mapper], tmp_path: Path) -> None:
    """M35, F30, F31: a flipped data byte is exit 3; a pickle is refused unread; an absent file is named."""
    data = bytearray(saved[0].read_bytes())
    data[-5] ^= 4
    flipped = tmp_path / "flipped"
    flipped.write_bytes(bytes(data))
    with pytest.raises(IntegrityError):
        load_mapper(flipped)
    pickled = tmp_path / "mapper.safetensors.pt"
    torch.save({"x": torch.zeros(1)}, pickled)
    with pytest.raises(CheckpointError, match="can run code"):
        load_mapper(pickled)
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_mapper(tmp_path / "absent")


def test_size_cap(saved: tuple[Path, Mapper], monkeypatch: Any) -> None:
    """M35: a file above the cap is not parsed."""
    monkeypatch.setattr(mapper_file, "MAX_BYTES", 1000)
    with pytest.raises(CheckpointError, match="above 1000 bytes"):
        load_mapper(saved[0])


@pytest.fixture
def written(tmp_path: Path) -> tuple[Path, Mapper]:
    torch.manual_seed(1)
    mapper = tiny_mapper()
    network = Writer()
    path = tmp_path / "writer.safetensors"
    save_writer(path, network, binding_for(mapper, RENDER, 1e9, network.units), TEACHER)
    return path, mapper


def test_writer_round_trip(written: tuple[Path, Mapper]) -> None:
    """M37, M39: a writer runs as LEARNED on the mapper it was taught for; its info is JSON with both hashes and the
    binding; its units are in the ledger."""
    path, mapper = written
    writer = load_writer(path, mapper, RENDER, 1e9)
    assert json.loads(json.dumps(writer.info)) == writer.info
    assert set(writer.info) == {"file_sha256", "content_hash", "binding"}
    assert not any(parameter.requires_grad for parameter in writer.network.parameters())
    policy = make_policy("LEARNED", writer=writer)
    runner = MapperRunner(mapper, policy, render_protocol=RENDER, budget_protocol=BudgetProtocol(1e9))
    sealed = run_episode(runner, frames(5))
    assert sealed.ledger.accounts["policy"].units == 2 * 1920
    assert sealed.ids == IDS


SEVEN = {
    "model_content_hash": (("model_content_hash",), "0" * 64),
    "feature_schema": (("feature_schema",), "skidpad.writer.features/2"),
    "renderer": (("render_protocol", "renderer"), "skidpad.renderer/2"),
    "samples": (("render_protocol", "samples"), 65),
    "ray_chunk": (("render_protocol", "ray_chunk"), 501),
    "max_units": (("budget_protocol", "max_units"), 1e9 + 1),
    "writer_units": (("budget_protocol", "writer_units"), 1921),
}


@pytest.mark.parametrize("name", SEVEN)
def test_writer_is_bound(written: tuple[Path, Mapper], tmp_path: Path, monkeypatch: Any, name: str) -> None:
    """M37, M38, F54: each of the seven bound values changed in turn: refused, printing bound and actual; tensors are
    read only for the one that needs the network."""
    keys, value = SEVEN[name]

    def change(arrays: Any, meta: Any) -> None:
        place = meta["binding"]
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value

    other = rewritten(written[0], tmp_path / "other", change)
    read = []
    original = mapper_file.decode_weights
    monkeypatch.setattr(mapper_file, "decode_weights", lambda *args: read.append(args) or original(*args))
    with pytest.raises(CheckpointError, match=name) as caught:
        load_writer(other, written[1], RENDER, 1e9)
    assert repr(value) in str(caught.value)
    assert "the run has" in str(caught.value)
    assert bool(read) == (name == "writer_units")


@pytest.mark.parametrize("value", [True, "1e12", 1e9 + 1, None, [1e9], float("1e308")])
def test_odd_budgets_are_refused(written: tuple[Path, Mapper], tmp_path: Path, value: Any) -> None:
    """M38: max_units is a number equal to the run's: a bool, a text, one more, nothing and a list are not."""

    def change(arrays: Any, meta: Any) -> None:
        meta["binding"]["budget_protocol"]["max_units"] = value

    with pytest.raises(CheckpointError, match="max_units"):
        load_writer(rewritten(written[0], tmp_path / "other", change), written[1], RENDER, 1e9)


def test_writer_units_are_an_exact_int(written: tuple[Path, Mapper], tmp_path: Path) -> None:
    """M38: 1920.0 and a missing mapping are refused; extra binding keys pass."""

    def as_float(arrays: Any, meta: Any) -> None:
        meta["binding"]["budget_protocol"]["writer_units"] = 1920.0

    def missing(arrays: Any, meta: Any) -> None:
        del meta["binding"]["render_protocol"]

    def extra(arrays: Any, meta: Any) -> None:
        meta["binding"]["render_protocol"]["note"] = meta["binding"]["note"] = "more"
        meta["binding"]["budget_protocol"]["max_units"] = 10**9

    for number, change in enumerate((as_float, missing)):
        with pytest.raises(CheckpointError):
            load_writer(rewritten(written[0], tmp_path / f"other-{number}", change), written[1], RENDER, 1e9)
    load_writer(rewritten(written[0], tmp_path / "extra", extra), written[1], RENDER, 1e9)


def test_price_and_teacher(written: tuple[Path, Mapper], tmp_path: Path) -> None:
    """M37: a teacher without its fields, or a price that is no number, is refused; a mapper is no writer."""
    for number, teacher in enumerate(({"price": 1.0}, {**TEACHER, "price": True}, {**TEACHER, "price": -1.0})):

        def change(arrays: Any, meta: Any, teacher: Any = teacher) -> None:
            meta["teacher"] = teacher

        with pytest.raises(CheckpointError):
            load_writer(rewritten(written[0], tmp_path / f"{number}", change), written[1], RENDER, 1e9)
    path = tmp_path / "mapper"
    save_mapper(path, written[1].carrier, written[1].write_rule)
    with pytest.raises(CheckpointError, match=r"'skidpad\.mapper/1', expected 'skidpad\.writer/1'"):
        load_writer(path, written[1], RENDER, 1e9)
    with pytest.raises(CheckpointError, match=r"'skidpad\.writer/1', expected 'skidpad\.mapper/1'"):
        load_mapper(written[0])


def test_without_learned_the_writer_is_not_imported() -> None:
    """M39: a run without LEARNED never imports the writer's code."""
    code = (
        "import sys, skidpad.streaming.runner, skidpad.streaming.policies as p\n"
        "[p.make_policy(name) for name in p.POLICIES if name != 'LEARNED']\n"
        "print('skidpad.streaming.writer' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_make_mapper_freezes() -> None:
    """M36: modules handed in from memory are put into evaluation mode: dropout is inert and no graph is kept."""
    carrier = Carrier(TINY)
    carrier.add_module("dropout", torch.nn.Dropout(0.5))
    mapper = make_mapper(carrier, Gate())
    ones = torch.ones(100)
    assert torch.equal(mapper.carrier.dropout(ones), ones)  # type: ignore[operator]
    assert replace(mapper, controls={}).info["preset"] == "tiny"
