"""Contacts: collisions of the agents under test, counted, sorted by partner, and by fault.

The simulator marks the step in which a contact begins and names a partner, the one met first or still touched. A
contact that lasts is one; it ends when neither the simulator names that partner nor the two boxes overlap. Pairs that
overlapped when one of them came into being count only after they have separated once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.evaluation.metrics.fault import (
    Body,
    ContactType,
    LaneBoxes,
    contact_energy,
    contact_type,
    corners,
    is_at_fault,
    overlapping,
    straddles,
)
from skidpad.evaluation.metrics.view import F64, AgentValues, Bool, CaseView, kept, measured
from skidpad.scenes.events import COLLISION, Controller, Event, Status
from skidpad.scenes.scene import SUBTYPE_STATIC, TYPE_UNKNOWN

NOBODY = -1


class Contact(NamedTuple):
    """One unbroken contact of an agent under test.

    agent    row among the agents under test
    partner  agent met, -1 if the trace does not say
    first    step in which it began
    last     step in which it was last seen
    share    of step `first` that had passed when it began
    """

    agent: int
    partner: int
    first: int
    last: int
    share: float


class Verdict(NamedTuple):
    """What fault.nuplan/1 says about the first contact with one partner.

    kind      how the agent under test met its partner
    fault     the agent under test is at fault
    by_log    it is not, but its partner is, and follows the log
    energy    [m/s]  half the norm of the velocity difference
    """

    contact: Contact
    kind: ContactType
    fault: bool
    by_log: bool
    energy: float


def find_contacts(view: CaseView) -> list[Contact]:
    """All contacts, by agent and then by first step."""
    return view.once("contacts", _find_contacts)


def _find_contacts(view: CaseView) -> list[Contact]:
    hit = view.happened(COLLISION)
    found: list[Contact] = []
    somebody: Bool = np.asarray(hit.any(axis=1))
    for block in view.blocks():
        rows = np.arange(view.count)[block][somebody[block]]
        if len(rows):
            for row, met in zip(rows.tolist(), overlaps(view, rows), strict=True):
                found += _contacts_of(view, row, hit[row], met)
    return found


def _contacts_of(view: CaseView, row: int, hit: Bool, overlap: Bool) -> list[Contact]:
    case, agent = int(view.case[row]), int(view.agents[row])
    named = np.where(view.active[row], view.crowd("contact_partner")[case, 1:, agent], NOBODY)
    met = overlap[1:] & view.active[row][:, None]
    steps = np.flatnonzero(named >= 0)
    met[steps, named[steps]] = True
    contacts = []
    for partner in np.flatnonzero(met.any(axis=0)):
        for first, last in _runs(met[:, partner]):
            # Of two met in one step only one is named, and boxes may touch a step before they overlap at its end.
            if hit[max(first - 1, 0) : last + 1].any():
                begun = view.crowd("contact_time")[case, first + 1, agent]
                share = float(begun) if named[first] == partner else 1.0
                contacts.append(Contact(row, int(partner), first, last, share))
    nameless = hit & ~met.any(axis=1)
    contacts += [Contact(row, NOBODY, first, last, 1.0) for first, last in _runs(nameless)]
    return sorted(contacts, key=lambda contact: (contact.first, contact.share, contact.partner))


def _runs(happened: Bool) -> list[tuple[int, int]]:
    """First and last step of every unbroken interval of (U,) bool."""
    edges = np.flatnonzero(np.diff(np.pad(happened.astype(np.int8), 1)))
    return [(int(first), int(stop) - 1) for first, stop in edges.reshape(-1, 2)]


def overlaps(view: CaseView, rows: NDArray[np.int64]) -> Bool:
    """(R, T, N) bool, whose box overlaps that of some agents under test at each state and was apart from it since both
    came into being.

    False for themselves and for agents without a body.
    """
    case, agent = view.case[rows], view.agents[rows]
    boxes = view.once("bodies", bodies)
    theirs = {name: boxes[name][case] for name in ("body", "x", "y", "reach")}
    mine = {name: array[case, :, agent][:, :, None] for name, array in boxes.items()}
    body = theirs["body"] & mine["body"]
    distance = (theirs["x"] - mine["x"]) ** 2 + (theirs["y"] - mine["y"]) ** 2
    near = body & (distance <= (theirs["reach"] + mine["reach"]) ** 2)
    if view.scene.meta.has_z:
        near &= np.abs(boxes["z"][case] - mine["z"]) <= (boxes["height"][case] + mine["height"]) / 2
    near[np.arange(len(rows)), :, agent] = False
    row, state, other = np.nonzero(near)
    shape = ("x", "y", "heading", "length", "width")
    first, second = (corners(*(boxes[name][case[row], state, who] for name in shape)) for who in (agent[row], other))
    near[row, state, other] = overlapping(first, second)
    return np.asarray(near & ~_since_the_start(near, body))


def bodies(view: CaseView) -> dict[str, NDArray[Any]]:
    """Everybody's boxes and speeds, each (K, T, N): f64 in SI units, and who has a body. Ask through
    `view.once("bodies", bodies)`."""
    names = ("x", "y", "z", "heading", "length", "width", "height", "speed")
    boxes: dict[str, NDArray[Any]] = {name: view.crowd(name).astype(np.float64) for name in names}
    boxes["reach"] = np.hypot(boxes["length"], boxes["width"]) / 2
    status = view.crowd("status")
    boxes["body"] = (status == Status.ACTIVE) | (status == Status.STOPPED)
    return boxes


def _since_the_start(near: Bool, body: Bool) -> Bool:
    """(R, T, N) bool, overlaps that have lasted since both had a body: no driving led to them."""
    began = near.copy()
    began[:, 1:] &= ~near[:, :-1]
    unprovoked = began.copy()
    unprovoked[:, 1:] &= ~body[:, :-1]
    began_at = np.maximum.accumulate(np.where(began, np.arange(near.shape[1])[:, None], 0), axis=1)
    return np.asarray(near & np.take_along_axis(unprovoked, began_at, axis=1))


def judge_contacts(view: CaseView, level_gate: float) -> list[Verdict]:
    """The first contact of every (agent, partner) pair, judged by fault.nuplan/1. Contacts with nobody are left out.

    `level_gate` [m]: lanes further above or below do not hold a box.
    """
    return view.once(f"verdicts {level_gate}", lambda view: _judge_contacts(view, level_gate))


def _judge_contacts(view: CaseView, level_gate: float) -> list[Verdict]:
    contacts = find_contacts(view)
    if not contacts:
        return []
    road = view.scene.road
    lanes = kept(road, ("lane boxes", level_gate), lambda: LaneBoxes(road, level_gate))
    verdicts, seen = [], set()
    for contact in contacts:
        pair = (contact.agent, contact.partner)
        if contact.partner == NOBODY or pair in seen:
            continue
        seen.add(pair)
        case, agent = int(view.case[contact.agent]), int(view.agents[contact.agent])
        (ego, ego_z), (other, other_z) = _moment(view, case, agent, contact)
        kind = contact_type(ego, other, not is_static(view, contact))
        fault = is_at_fault(kind, kind is ContactType.LATERAL and straddles(ego, ego_z, lanes))
        by_log = False
        if not fault and view.kinds("controller")[case, contact.partner] == Controller.REPLAY:
            theirs = contact_type(other, ego)
            by_log = is_at_fault(theirs, theirs is ContactType.LATERAL and straddles(other, other_z, lanes))
        verdicts.append(Verdict(contact, kind, fault, by_log, contact_energy(ego, other)))
    return verdicts


def is_static(view: CaseView, contact: Contact) -> bool:
    """Whether what was met is a thing. What is of unknown type is no road user, as the simulator sorts them."""
    trace = view.traces[view.case[contact.agent]]
    return bool(trace["subtype"][contact.partner] == SUBTYPE_STATIC or trace["type"][contact.partner] == TYPE_UNKNOWN)


def _moment(view: CaseView, case: int, agent: int, contact: Contact) -> tuple[tuple[Body, float], tuple[Body, float]]:
    """The boxes of agent and partner as their contact began, each with its height z [m]: between the two states by the
    share of the step that had passed, or at its end if one of them was not there before."""
    there = view.once("bodies", bodies)["body"][case, contact.first, [agent, contact.partner]]
    share = contact.share if there.all() else 1.0
    return _body(view, case, agent, contact.first, share), _body(view, case, contact.partner, contact.first, share)


def _body(view: CaseView, case: int, agent: int, step: int, share: float) -> tuple[Body, float]:
    boxes = view.once("bodies", bodies)
    names = ("x", "y", "z", "heading", "length", "width")
    before, after = ({name: float(boxes[name][case, state, agent]) for name in names} for state in (step, step + 1))
    begins, ends = boxes["body"][case, step, agent], boxes["body"][case, step + 1, agent]
    speed, next_speed = (float(boxes["speed"][case, state, agent]) for state in (step, step + 1))
    # Who is removed or stopped for the contact has no pose or no speed after it.
    where = share if begins and ends else float(ends)
    if view.crowd("status")[case, step + 1, agent] == Status.ACTIVE:
        speed = (1 - share) * speed + share * next_speed if begins else next_speed
    turn = (after["heading"] - before["heading"] + np.pi) % (2 * np.pi) - np.pi
    x, y, z = (before[name] + where * (after[name] - before[name]) for name in ("x", "y", "z"))
    size = after if ends else before
    return Body(x, y, before["heading"] + where * turn, size["length"], size["width"], speed), z


def _per_agent(view: CaseView, agents: list[int]) -> F64:
    return np.bincount(np.asarray(agents, dtype=np.int64), minlength=view.count).astype(np.float64)


def collision_rate(view: CaseView) -> AgentValues:
    """1 where the agent touched anything in an active step."""
    return measured(view.happened(COLLISION).any(axis=1), 1.0, (view.never_active, "no_exposure"))


def collision_events(view: CaseView) -> AgentValues:
    """How many contacts the agent had; one that lasts is one."""
    counts = _per_agent(view, [contact.agent for contact in find_contacts(view)])
    return measured(counts, 1.0, (view.never_active, "no_exposure"))


def collision_vru_rate(view: CaseView) -> AgentValues:
    """1 where the agent touched a pedestrian or a cyclist."""
    return measured(view.happened(Event.COLLISION_VRU).any(axis=1), 1.0, (view.never_active, "no_exposure"))


def at_fault_collision_rate(view: CaseView, *, level_gate: float) -> AgentValues:
    """1 where the agent had a contact of its own fault by fault.nuplan/1, which needs lanes."""
    blamed = [verdict.contact.agent for verdict in _verdicts(view, level_gate) if verdict.fault]
    return measured(_per_agent(view, blamed) > 0, 1.0, *_missing(view))


def at_fault_skidpad_rate(view: CaseView) -> AgentValues:
    """1 where the simulator charged the agent with a contact, by fault.skidpad/1."""
    return measured(view.happened(Event.AT_FAULT).any(axis=1), 1.0, (view.never_active, "no_exposure"))


def collision_by_log_rate(view: CaseView, *, level_gate: float) -> AgentValues:
    """1 where the agent was in a contact that by fault.nuplan/1 its replayed partner caused, and not the agent."""
    innocent = [verdict.contact.agent for verdict in _verdicts(view, level_gate) if verdict.by_log]
    return measured(_per_agent(view, innocent) > 0, 1.0, *_missing(view))


def _verdicts(view: CaseView, level_gate: float) -> list[Verdict]:
    return judge_contacts(view, level_gate) if view.has_lanes else []


def _missing(view: CaseView) -> tuple[tuple[object, str], ...]:
    return (view.never_active, "no_exposure"), (not view.has_lanes, "no_lane")
