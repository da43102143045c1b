"""Write policies, actions, the ledger, the writer."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from skidpad.errors import RefusedError, UsageError
from skidpad.streaming.budget import OPERATIONS, BudgetProtocol, Ledger
from skidpad.streaming.policies import FEATURE_SCHEMA, FEATURES, POLICIES, Action, Cache, Feedback, make_policy
from skidpad.streaming.writer import Learned, Writer

UNITS = {Action.OFF: 0, Action.FUSE: 100, Action.COMPLETE: 900, Action.ALL: 1000}
EVERY = tuple(Action)


def told(residual: float | None = 0.1, steps_left: int = 4, features: list[float] | None = None) -> Feedback:
    values = features or [0.0] * len(FEATURES)
    return Feedback(dict(zip(FEATURES, values, strict=True)), residual, 3, steps_left, 1e6, UNITS)


def test_actions_print_and_parse() -> None:
    """M58: actions print as their names and parse exactly; ties are broken in their order; lower case is refused."""
    assert [str(action) for action in Action] == ["OFF", "FUSE", "COMPLETE", "ALL"]
    assert [Action.parse(str(action)) for action in Action] == list(Action)
    for wrong in ("off", "Fuse", "", None, 1, " ALL"):
        with pytest.raises(UsageError):
            Action.parse(wrong)
    assert [action.fuses for action in Action] == [False, True, False, True]
    assert [action.completes for action in Action] == [False, False, True, True]


def test_fixed_and_scheduled() -> None:
    """M60: fixed policies do what their name says; SCHEDULED fuses and does ALL at the last step, stepping down."""
    for action in Action:
        assert make_policy(action.value).choose(told(), EVERY) == action
    scheduled = make_policy("SCHEDULED")
    assert scheduled.choose(told(steps_left=2), EVERY) == Action.FUSE
    assert scheduled.choose(told(steps_left=1), EVERY) == Action.ALL
    assert scheduled.choose(told(steps_left=1), (Action.OFF, Action.FUSE)) == Action.FUSE
    assert scheduled.choose(told(steps_left=1), (Action.OFF,)) == Action.OFF


@given(st.lists(st.one_of(st.none(), st.floats(0, 3)), max_size=30), st.floats(0, 2), st.floats(0, 2))
def test_writes_never_grow_with_the_threshold(residuals: list[float | None], a: float, b: float) -> None:
    """M60: over fixed residuals a higher threshold never writes more; 0 writes at every view with a valid pixel."""

    def writes(threshold: float) -> int:
        policy = make_policy("RESIDUAL_THRESHOLD", residual_threshold=threshold)
        return sum(policy.choose(told(residual), EVERY) == Action.ALL for residual in residuals)

    assert writes(min(a, b)) >= writes(max(a, b))
    assert writes(0.0) == sum(residual is not None for residual in residuals)


def test_feasible_off_gives_off() -> None:
    """M62: where only OFF fits, every adaptive policy takes it."""
    torch.manual_seed(0)
    policies = [make_policy(name) for name in ("SCHEDULED", "RESIDUAL_THRESHOLD", "CACHE")]
    for policy in [*policies, Learned(Writer(), 0.0)]:
        assert policy.choose(told(residual=2.0, steps_left=1), (Action.OFF,)) == Action.OFF
    assert Cache().keeps_arrivals


def test_unknown_policies_and_oracle() -> None:
    """M60: an unknown name names its neighbour; LEARNED needs a writer; ORACLE is refused in a sealed run."""
    with pytest.raises(UsageError, match="did you mean 'FUSE'"):
        make_policy("FUSES")
    with pytest.raises(UsageError, match="LEARNED needs writer"):
        make_policy("LEARNED")
    with pytest.raises(RefusedError, match="ORACLE reads the vault"):
        make_policy("ORACLE")
    assert "ORACLE" not in POLICIES


def test_feature_table_is_pinned() -> None:
    """M87: 24 features in this order under this schema; a writer reads them by place."""
    assert FEATURE_SCHEMA == "skidpad.writer.features/1"
    assert list(FEATURES) == [
        "mean depth", "uncovered share", "wrong share", "colour error",
        "motion right", "motion down", "motion forward", "turn about right", "turn about down", "turn about forward",
        "known share", "mean log weight", "thin share", "layer age", "steps left",
        "steps of OFF left", "steps of FUSE left", "steps of COMPLETE left", "steps of ALL left",
        "previous was none", "previous was OFF", "previous was FUSE", "previous was COMPLETE", "previous was ALL",
    ]  # fmt: skip


def test_writer_size() -> None:
    """M87: 24-32-32-4, 1,988 parameters, 1,920 multiply-adds."""
    writer = Writer()
    assert sum(parameter.numel() for parameter in writer.parameters()) == 1988
    assert writer.units == Learned(writer, 0.0).units == 1920


@given(st.integers(0, 1000), st.floats(0, 1e-2), st.floats(0, 1e-2))
def test_higher_price_never_buys_dearer(seed: int, a: float, b: float) -> None:
    """M87: at equal features a higher price never picks a dearer action; ties go to the cheaper one."""
    torch.manual_seed(seed)
    writer = Writer()
    feedback = told(features=torch.randn(len(FEATURES)).tolist())
    with torch.no_grad():
        cheap, dear = (UNITS[Learned(writer, price).choose(feedback, EVERY)] for price in (max(a, b), min(a, b)))
        assert cheap <= dear
        for parameter in writer.parameters():
            parameter.zero_()
        assert Learned(writer, 0.0).choose(feedback, EVERY) == Action.OFF


def ledger(max_units: float) -> Ledger:
    return Ledger({**dict.fromkeys(OPERATIONS, 10), "fuse": 100}, max_units)


def test_ledger_reserves_and_refuses() -> None:
    """M63, M65: what is reserved cannot be written away; the smallest limit passes and one unit less is refused;
    recording above the limit raises and books nothing."""
    books = ledger(250)
    books.reserve("query_render", 4)
    books.reserve("encode", 1)
    assert books.remaining == 200
    books.record("fuse", flops=7, seconds=0.5, touched=3)
    books.record("fuse")
    with pytest.raises(RefusedError, match="fuse needs 100 units, 0 of 250 are left"):
        books.record("fuse")
    books.record("query_render", 4)
    books.record("encode")
    assert books.spent == 250
    with pytest.raises(RefusedError):
        books.record("encode")
    report = books.report()
    assert report["units"] == sum(entry["units"] for entry in report["operations"].values()) == 250
    assert report["operations"]["fuse"] == {
        "count": 2, "units": 200, "flops": 7, "seconds": 0.5, "peak_bytes": None, "touched_voxels": 3,
    }  # fmt: skip
    assert report["label"] == "declared operator work, not FLOPs"
    assert Ledger.from_json(books.to_json()).to_json() == books.to_json()
    ledger(50).reserve("policy", 5)
    with pytest.raises(RefusedError, match="needs at least 50 units"):
        ledger(49).reserve("policy", 5)


@pytest.mark.parametrize("value", [0, -1.0, math.inf, math.nan, True, "1e12", None])
def test_budget_is_a_finite_number(value: object) -> None:
    """M31: max_units is a finite number above 0; a bool, a text and infinity are refused."""
    with pytest.raises(UsageError, match="give a finite budget"):
        BudgetProtocol(value)  # type: ignore[arg-type]
