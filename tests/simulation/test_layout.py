"""The tables of the simulator are frozen, honest and agree with the numbers kernels use (S44, S45, S83, S84)."""

from __future__ import annotations

import ast
import inspect
from typing import get_args

import pytest

from skidpad.errors import SettingsError
from skidpad.runs.trace import TRACE_ARRAYS
from skidpad.settings.schema import EnvSettings
from skidpad.simulation import state
from skidpad.simulation.layout import COMPACT, LAYOUTS, layout_of, layout_with
from skidpad.simulation.layout_table import Block, Feature, Layout

# Golden: checkpoints carry this digest, so a change here is a new layout version, not an edit (S83).
COMPACT_DIGEST = "babf9aa8998bb315b5553d8e7bbe065f3fc0625165a6ee85a305fdf086425856"


@pytest.mark.parametrize("table", [state.FLOAT_STATE, state.INT_STATE, state.BYTE_STATE])
def test_rows_have_the_numbers_of_their_names(table):
    """Kernels index by number and Python by table: a field inserted in one of them would shift all others silently."""
    for row, field in enumerate(table):
        assert getattr(state, field.name.upper()) == row, field.name


def test_traced_fields_are_what_a_trace_stores():
    """Every per-agent array of a trace is a state field or the events, under the same name (TRACE_ARRAYS)."""
    traced = {
        field.name
        for table in (state.FLOAT_STATE, state.INT_STATE, state.BYTE_STATE)
        for field in table
        if field.traced
    }
    assert traced | {"events"} == {array.name for array in TRACE_ARRAYS if array.shape == "R,T,N"}


def test_parameters_have_distinct_rows():
    """Two parameters in one row would read each other's value."""
    names, inside = [], False
    for node in ast.parse(inspect.getsource(state)).body:
        found = [name.id for name in ast.walk(node) if isinstance(name, ast.Name) and name.id.isupper()]
        inside = (inside or "P_DT" in found) and "PARAMETERS" not in found
        names += found if inside and isinstance(node, ast.Assign) else []
    assert len(names) > 16
    assert sorted(getattr(state, name) for name in names) == list(range(state.PARAMETERS))


def test_compact_is_frozen():
    """S89: 284 floats in this order; S83: the digest that checkpoints carry."""
    assert [(block.name, block.size) for block in COMPACT.blocks] == [
        ("ego", 16),
        ("goal", 4),
        ("partners", 64),
        ("road", 192),
        ("signal", 8),
    ]
    assert COMPACT.size == 284
    assert COMPACT.digest == COMPACT_DIGEST
    assert COMPACT.span("road") == slice(84, 276)


@pytest.mark.parametrize("change", ["divisor", "low", "name", "rows", "window", "sectors"])
def test_digest_covers_what_a_policy_reads(change):
    """S83: a policy trained under other numbers must be refused, so each of them is in the digest."""
    block = COMPACT.blocks[0]
    feature = block.features[0]
    first = {"divisor": 41.0, "low": -0.5, "name": "velocity"}
    blocks, window, sectors = COMPACT.blocks, COMPACT.window, COMPACT.sectors
    if change in first:
        blocks = (
            block._replace(features=(feature._replace(**{change: first[change]}), *block.features[1:])),
            *blocks[1:],
        )
    elif change == "rows":
        blocks = (*blocks[:-1], blocks[-1]._replace(rows=2))
    elif change == "window":
        window = (20.0, 60.0, 31.0)
    else:
        sectors = 16
    assert Layout("compact/1", blocks, "cell", 10.0, sectors, window).digest != COMPACT.digest


def test_a_layout_that_cuts_the_road_ahead_is_refused():
    """S17: with too few sectors the road straight ahead falls out of the turned window."""
    block = Block("road", 1, 60.0, (Feature("x", "m", 60.0, -1.0, 1.0),))
    with pytest.raises(SettingsError, match="straight ahead is cut"):
        Layout("narrow/1", (block,), "cell", 10.0, 8, (20.0, 60.0, 20.0))


SIZES = {
    ("default/1", False, False): 972,
    ("default/1", False, True): 989,
    ("compact/1", True, True): 284,
    ("wide/1", False, False): 1848,
    ("wide/1", True, False): 1851,
    ("wide_32/1", False, False): 1624,
    ("wide_20/1", False, False): 1280,
    ("v3/1", False, True): 1292,
    ("v3_train/1", False, True): 923,
    ("deferred/1", False, False): 457,
    ("deferred_32/1", False, False): 233,
}


@pytest.mark.parametrize("case", SIZES)
def test_sizes_are_the_specified_and_the_peers(case):
    """S86-S89, S94: a row too many or a feature forgotten shifts every number behind it; 1,848, 1,851, 1,624, 1,280,
    923 and 1,292 are the peer's own."""
    name, jerk, conditioning = case
    layout = layout_with(name, jerk=jerk, conditioning=conditioning)
    assert layout.size == SIZES[case] == sum(block.size for block in layout.blocks)
    assert (layout.spans[:, 1] * layout.spans[:, 2]).sum() == layout.size
    low, high = layout.bounds()
    assert low.shape == high.shape == (layout.size,)
    assert (low < high).all()


def test_native_layouts_declare_what_they_clip():
    """S84: -1 to 1 and nothing else, so that int8 rows and a network's first layer know their input."""
    for name in ("default/1", "compact/1"):
        low, high = layout_with(name, conditioning=True).bounds()
        assert (low.min(), high.max()) == (-1, 1)


def test_digests_differ():
    """S83: order, jerk and conditioning change what is read, so each is another digest; an unknown name is named."""
    assert len({layout.digest for layout in LAYOUTS.values()}) == len(LAYOUTS)
    wide = {layout_with("wide/1", jerk=jerk).digest for jerk in (False, True)}
    assert len(wide | {layout_with("default/1", conditioning=on).digest for on in (False, True)}) == 4
    with pytest.raises(SettingsError, match="did you mean 'wide/1'"):
        layout_with("wide/2")


def test_settings_name_layouts_that_exist():
    """S120: a name in the schema without a table would fail when a world is built, not when the file is read."""
    names = get_args(EnvSettings.model_fields["layout"].annotation)
    assert set(names) <= set(LAYOUTS)
    assert layout_of(EnvSettings(layout="wide/1")).size == 1848


def test_document_names_every_feature():
    """S83: the printed table is the documentation, so nothing may be missing from it."""
    text = COMPACT.document()
    for block in COMPACT.blocks:
        for feature in block.features:
            assert f"| {feature.name} |" in text
    assert all(layout.id == key for key, layout in LAYOUTS.items())
