"""What a section that renders must say, and what it may not (E11, E32, E85, E86, E91)."""

from __future__ import annotations

import pytest

from skidpad.settings.render_rules import DRAWN, DRAWN_KNOBS

BUDGET = "render = true\neval.render_num_scenarios = 3\neval.render_max_steps = 50\n"
LIVE = 'type = "human_replay"\nenv.scenes = "data"\n'


def section(text: str = "", budget: str = BUDGET) -> str:
    return f"[eval.x]\n{budget}{text}{LIVE}"


@pytest.mark.parametrize("key", ["eval.render_num_scenarios", "eval.render_max_steps"])
def test_the_budget_is_never_a_default(refusal, key) -> None:
    """E86: either key missing is refused at load, with the line of `render`; defaults in code once drew for 28 min."""
    text = "".join(line + "\n" for line in BUDGET.splitlines() if not line.startswith(key))
    message = refusal(section(budget=text), name="s.toml")
    assert message == f"s.toml:2: render = true in [eval.x] needs {key}: how much is drawn is never a default"


def test_without_render_nothing_is_asked(load) -> None:
    """A section that does not render needs no budget, and may say beforehand what it would draw."""
    spec = load(section('render_views = ["bev"]\n', budget="")).spec("x")
    assert (spec.render, spec.render_views, spec.record) == (False, ("bev",), "states")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('render_views = ["bevv"]', "did you mean 'bev'?"),
        ('render_backend = ["gif"]', "'mp4', 'triage_html' or 'obs_html'"),
        ("render_views = []", "at least 1 item"),
        ('render_views = ["bev", "bev"]', "names one twice"),
        ('render_select = "wrst"', "did you mean 'worst'?"),
        ('keep_traces = "none"', "leaves nothing to draw from"),
        ("interval = 10\nrender_interval = 25", "must be a multiple of interval = 10"),
        ("render_interval = 25", "must be a multiple of interval = 0"),
        ("eval.render_max_minutes = 0.01", "takes about 0.051 minutes (1 views x 3 cases x 50 steps)"),
        ('record = "states"\nrender_views = ["sim_state", "bev"]', "view bev shows recorded observations"),
        ('record = "states"\nrender_backend = ["obs_html"]', "page obs_html shows recorded observations"),
    ],
)
def test_what_cannot_be_drawn_is_refused_at_load(refusal, line, reason) -> None:
    """E11, E86, E91, E94: an unknown view once became view 0, and a missing budget was found after the pass."""
    assert reason in refusal(section(line + "\n"))


@pytest.mark.parametrize("line", ['render_views = ["bev_all"]', 'render_backend = ["mp4", "obs_html"]'])
def test_pictures_of_observations_imply_their_recording(load, line) -> None:
    """E91, E94: the level comes with the view, changes the digest as if it had been written, and prints so."""
    implied, written = load(section(line + "\n")), load(section(f'{line}\nrecord = "observations"\n'))
    assert implied.spec("x").record == "observations"
    assert implied.spec("x").section_digest([]) == written.spec("x").section_digest([])
    assert implied.spec("x").origins["record"].line == 5
    assert load(implied.print_config()).spec("x").record == "observations"


def test_what_is_drawn_changes_no_digest(load) -> None:
    """E18: pictures are no result; drawing more of the same pass must not make it another evaluation."""
    plain = load(section(budget="")).spec("x").section_digest([])
    more = 'render_views = ["sim_state", "topdown_sim"]\nrender_select = ["a"]\nrender_interval = 20\ninterval = 10\n'
    spec = load(section(more + "render_at_end = false\neval.render_max_minutes = 3.0\n")).spec("x")
    assert spec.section_digest([]) == plain
    tree = spec.tree
    assert {key: tree[key] for key in DRAWN} == {
        "render": True,
        "render_interval": 20,
        "render_at_end": False,
        "render_views": ["sim_state", "topdown_sim"],
        "render_backend": ["mp4"],
        "render_select": ["a"],
    }
    assert [tree["eval"][key] for key in DRAWN_KNOBS] == [3, 50, 3.0]
