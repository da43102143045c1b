"""What the schema knows about keys and values: types for text, sentences for mistakes.

The models of schema.py are the only list of keys; this module walks them. It adds to pydantic what a person needs: the
line, the key as written, and the nearest known one.
"""

from __future__ import annotations

import re
import tomllib
import types
import typing
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from skidpad.errors import nearest
from skidpad.settings.leaves import Key, Leaf, Leaves, Origin, Problems, Text, dotted, nested
from skidpad.settings.schema import (
    EvalKnobs,
    HeaderSettings,
    ManagerSettings,
    StructureSettings,
    SuiteEnvSettings,
    VecSettings,
)
from skidpad.settings.suite_file import plain, toml_text

Model = TypeVar("Model", bound=BaseModel)


@cache
def fields_of(model: type[BaseModel]) -> Mapping[Key, Any]:
    """Every leaf of a model, nested ones included: its key and its annotation."""
    found: dict[Key, Any] = {}
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            found |= {(name, *key): annotation for key, annotation in fields_of(kind).items()}
        else:
            found[name,] = kind
    return types.MappingProxyType(found)


HEADER = fields_of(HeaderSettings)
MANAGER = fields_of(ManagerSettings)
STRUCTURE = fields_of(StructureSettings)
WORLD: Mapping[Key, Any] = {
    **{("env", *key): kind for key, kind in fields_of(SuiteEnvSettings).items()},
    **{("vec", *key): kind for key, kind in fields_of(VecSettings).items()},
}


def section_fields(knobs: Iterable[type[EvalKnobs]]) -> dict[Key, Any]:
    """Every key a section may hold when its type is one of those with these knobs."""
    own = {("eval", *key): kind for model in knobs for key, kind in fields_of(model).items()}
    return {**HEADER, **WORLD, **own}


def typed(value: Any, annotation: Any) -> Any:
    """Text of an .ini file or the command line as the value its field takes; any other value unchanged.

    TOML spelling, and True, False and None besides. What fits no kind stays text, for the schema to refuse.
    """
    if not isinstance(value, Text):
        return value
    kinds = _kinds(annotation)
    text = str(value).strip()
    if type(None) in kinds and text == "None":
        return None
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    if tuple in kinds and text.startswith("["):
        return _toml_value(text)
    if str in kinds:
        return text
    return {"True": True, "False": False}.get(text, _toml_value(text))


def _kinds(annotation: Any) -> set[type]:
    """The Python types an annotation accepts."""
    if typing.get_origin(annotation) is typing.Annotated:
        return _kinds(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) is typing.Literal:
        return {type(value) for value in typing.get_args(annotation)}
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return set[type]().union(*map(_kinds, typing.get_args(annotation)))
    return {typing.get_origin(annotation) or annotation}


def _toml_value(text: str) -> Any:
    try:
        tree = tomllib.loads(f"value = {text}")
        return plain(tree["value"]) if len(tree) == 1 else text
    except (ValueError, RecursionError):  # TOMLDecodeError is a ValueError
        return text


def validated(model: type[Model], leaves: Leaves, problems: Problems, at: Origin) -> Model | None:
    """The model of these leaves, or None with the reasons in `problems`; what has no line of its own is put `at`.

    Keys are relative to the model, and all known to it.
    """
    fields = fields_of(model)
    values = {key: typed(leaf.value, fields[key]) for key, leaf in leaves.items()}
    try:
        return model.model_validate(nested(values))
    except ValidationError as error:
        reasons: dict[Key, list[str]] = {}
        for one in error.errors(include_url=False):
            key = next((loc for n in range(1, len(one["loc"]) + 1) if (loc := one["loc"][:n]) in fields), ())
            reasons.setdefault(typing.cast(Key, key), []).append(_reason(dict(one)))
        for key, texts in reasons.items():
            reason = " or ".join(dict.fromkeys(texts))
            if key in leaves:
                origin = leaves[key].origin
                problems.add(origin, f"{origin.written} = {_short(values[key])}{place(origin)} {reason}")
            else:
                problems.add(at, f"[eval.{at.section}] needs {dotted(key)}" if key else reason)
        return None


def _reason(error: Mapping[str, Any]) -> str:
    reason = re.sub("^(Input|Value error,) ", "", error["msg"])
    if error["type"] == "literal_error" and isinstance(error["input"], str):
        reason += nearest(error["input"], re.findall(r"'([^']*)'", error["ctx"]["expected"]))
    return reason


def _short(value: Any) -> str:
    text = toml_text(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def place(origin: Origin) -> str:
    """` in [eval.x]`, or nothing for what stands in no section."""
    return f" in [eval.{origin.section}]" if origin.section else ""


def unknown_key(key: Key, leaf: Leaf, known: Collection[Key]) -> str:
    """The sentence that refuses a key, with the nearest known one."""
    written = leaf.origin.written
    return f"unknown key {written!r}{place(leaf.origin)}{_hint(key, written, known)}"


def _hint(key: Key, written: str, known: Collection[Key]) -> str:
    if any(other[: len(key)] == key for other in known):
        return "; it is a table, not a value"
    for depth in range(1, len(key)):
        if key[:depth] in known:
            return f"; {dotted(key[:depth])!r} is a value, not a table"
    for other in known:
        if other[-1] == key[-1]:
            group = f"under `{dotted(other[:-1])}.`" if len(other) > 1 else "in the section itself, without a group"
            return f"; it belongs {group}: {dotted(other)}"
    if key[0] == "eval" and not written.startswith("eval."):  # written plain in a section
        plain_names = {other[0] for other in known} | {name for (name,) in STRUCTURE}
        return nearest(key[1], plain_names | {other[1] for other in known if other[0] == "eval"})
    siblings = [other[: len(key)] for other in known if other[: len(key) - 1] == key[:-1]]
    alike = [dotted(other) for other in siblings if nearest(key[-1], [other[-1]])]
    return nearest(dotted(key), alike) or nearest(key[-1], (other[-1] for other in known))
