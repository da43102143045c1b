"""Write the tables of docs/ that are derived from code. A test fails while a document and the code disagree.

python scripts/write_docs.py            write
python scripts/write_docs.py --check    say what differs, exit 1
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[1] / "docs"


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def scene_arrays() -> str:
    """Every array of a scene."""
    from skidpad.scenes.scene import SCENE_ARRAYS

    rows = ((f"`{s.path}`", f"({s.shape})", f"`{s.dtype}`", s.unit, s.meaning) for s in SCENE_ARRAYS)
    return table(("array", "shape", "dtype", "unit", "meaning"), rows)


def trace_arrays() -> str:
    """Every array of a trace."""
    from skidpad.runs.trace import TRACE_ARRAYS

    rows = ((f"`{s.name}`", f"({s.shape})", f"`{s.dtype}`", s.unit, s.meaning) for s in TRACE_ARRAYS)
    return table(("array", "shape", "dtype", "unit", "meaning"), rows)


def metric_table(lines: Iterable[Any]) -> str:
    """Registry lines as a table."""
    rows = (
        (f"`{m.name}`", m.version, m.unit, m.direction, m.shape, m.aggregation, ", ".join(m.needs), m.aid, m.source)
        for m in lines
    )
    return table(("metric", "version", "unit", "better", "shape", "primary", "needs", "reading aid", "source"), rows)


def metrics() -> str:
    """Every metric of one trace."""
    from skidpad.evaluation.metrics.registry import LINES

    return metric_table(LINES.values())


def rollout_metrics() -> str:
    """Every metric of a set of rollouts."""
    from skidpad.evaluation.metrics.rollout_registry import PEER_ROLLOUT_METRICS, ROLLOUT_METRICS

    return metric_table([*ROLLOUT_METRICS.values(), *PEER_ROLLOUT_METRICS.values()])


def peer_names() -> str:
    """The peer's names."""
    from skidpad.evaluation.metrics.peer import PEER

    rows = ((f"`{name}`", f"`{entry.ours}`", entry.differs) for name, entry in PEER.items())
    return table(("peer", "ours", "what the peer's differs in"), rows)


def pages() -> str:
    """One section per metric."""
    from skidpad.evaluation.metrics.explain import EXPLAINED, as_markdown, page

    return "\n\n".join(as_markdown(page(name)) for name in EXPLAINED)


def functions() -> str:
    """What is called from Python."""
    from skidpad.evaluation.metrics.called import CALLED

    rows = ((f"`{one.line}`", one.aid) for one in CALLED.values())
    return table(("function", "reading aid"), rows)


def published() -> str:
    """Rows of public tables."""
    from skidpad.evaluation.metrics.published import TABLES

    parts = [
        f"{one.label}: **{one.title}**, beside `{one.metric}`. {one.note}\n\n"
        + table(("method", *one.columns), one.rows)
        for one in TABLES
    ]
    return "\n\n".join(parts)


def codes() -> str:
    """Event bits, status, controllers and exclusions, as traces store them."""
    from skidpad.scenes.events import Controller, Event, Exclusion, Status

    rows = [
        (kind.__name__, ", ".join(f"{code.value} {(code.name or '').lower()}" for code in kind))
        for kind in (Event, Status, Controller, Exclusion)
    ]
    return table(("code", "values"), rows)


def layouts() -> str:
    """Every observation layout whose rows are its own, column by column."""
    from skidpad.simulation.layout import LAYOUTS

    return "\n\n".join(
        f"## {layout.id}\n\n{layout.document()}" for layout in LAYOUTS.values() if layout.order == "cell"
    )


GENERATED = {
    "layouts.md": {"layouts": layouts},
    "formats.md": {"scene arrays": scene_arrays, "trace arrays": trace_arrays, "codes": codes},
    "metrics.md": {
        "metrics": metrics,
        "rollout metrics": rollout_metrics,
        "peer names": peer_names,
        "functions": functions,
        "published": published,
        "pages": pages,
    },
}


def filled(name: str) -> tuple[str, str]:
    """A document as it is, and as it should be."""
    text = (DOCS / name).read_text(encoding="utf-8")
    wanted = text
    for mark, make in GENERATED[name].items():
        pattern = re.compile(rf"(<!-- generated: {re.escape(mark)} -->\n).*?(<!-- end -->)", re.S)
        if not pattern.search(wanted):
            raise SystemExit(f"{name}: has no place for the generated table {mark!r}")
        wanted = pattern.sub(lambda found, make=make: found[1] + make() + "\n" + found[2], wanted)  # type: ignore[misc]
    return text, wanted


def main() -> int:
    """Write or check every document; returns the exit code."""
    stale = 0
    for name in GENERATED:
        text, wanted = filled(name)
        if text == wanted:
            continue
        stale += 1
        if "--check" in sys.argv[1:]:
            print(f"docs/{name} does not say what the code says; run python scripts/write_docs.py")
        else:
            (DOCS / name).write_text(wanted, encoding="utf-8")
            print(f"wrote docs/{name}")
    return 1 if stale and "--check" in sys.argv[1:] else 0


if __name__ == "__main__":
    sys.exit(main())
