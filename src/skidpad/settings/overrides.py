"""Settings of the command line, `key.path=value`: the strongest layer.

    K=v           every section, K as it stands in a section: env.dt, seed, eval.num_scenarios; or, as eval.K, a
                  setting of the manager
    eval.NAME.K=v one section, and stronger than the above

A path in an override is relative to the working directory. What shapes inheritance can only be written in a file.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from skidpad.errors import listed, nearest
from skidpad.settings.checking import MANAGER, STRUCTURE, unknown_key
from skidpad.settings.leaves import Key, Leaf, Leaves, Origin, Problems, Text, laid_over
from skidpad.settings.sections import Sections, normal, normal_key

SOURCE = "command line"


@dataclass(frozen=True)
class Overrides:
    """everywhere: by absolute key, the manager's among them; by_section: by key relative to the section."""

    everywhere: Leaves
    by_section: dict[str, dict[Key, Leaf]]

    def of(self, name: str) -> Leaves:
        """The leaves for one section, its own over the general ones."""
        return laid_over(self.everywhere, self.by_section.get(name, {}))


def read_overrides(
    texts: Sequence[str],
    sections: Sections,
    known: Collection[Key],
    problems: Problems,
    more: Collection[Key] = (),
) -> Overrides:
    """The overrides, with whatever does not fit the sections and the known keys of a section in `problems`.

    more  keys of no section, such as train.seed
    """
    everywhere: dict[Key, Leaf] = {}
    by_section: dict[str, dict[Key, Leaf]] = {}
    for text in texts:
        written, equals, value = text.partition("=")
        key = tuple(written.strip().split("."))
        origin = Origin("override", SOURCE, written=written.strip())
        leaf = Leaf(Text(value.strip()), origin)
        if not equals or not value.strip():
            problems.add(origin, f'{text!r} has no value; write key.path=value, and "" for an empty text')
            continue
        if key[0] == "eval" and len(key) > 2:
            refusal = _refusal(key[1], key[2:], leaf, sections, known)
            target = by_section.setdefault(key[1], {})
            key, leaf = normal(key[2:], leaf, problems)
        else:
            target = everywhere
            if key not in more:
                key, leaf = normal(key, leaf, problems)
            general = {*known, *more, *(("eval", *one) for one in MANAGER)}
            refusal = None if key in general else unknown_key(key, leaf, general)
            if origin.written.split(".")[0] in sections.named:
                refusal = f"unknown key {origin.written!r}; did you mean 'eval.{origin.written}'?"
        if refusal is None and key in target:
            refusal = f"{origin.written!r} is given twice; keep one"
        if refusal is not None:
            problems.add(origin, refusal)
        else:
            target[key] = leaf
    return Overrides(everywhere, by_section)


def _refusal(name: str, key: Key, leaf: Leaf, sections: Sections, known: Collection[Key]) -> str | None:
    """Why this override of one section is not one, or None."""
    written = leaf.origin.written
    section = sections.named.get(name)
    if section is None:
        return f"{written!r}: no section {name!r}{nearest(name, sections.named)}; there are {listed(sections.named)}"
    if section.is_abstract:
        return f"{written!r}: {name!r} is a template; override a section that inherits it"
    if key == ("clean",):
        return None
    if key in STRUCTURE:
        return f"{written!r}: {key[0]} shapes the inheritance and is written in the file"
    key = normal_key(key)
    return None if key in known else unknown_key(key, leaf, known)
