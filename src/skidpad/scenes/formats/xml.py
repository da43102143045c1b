"""XML as road files use it: a bounded tree that knows its line numbers and remembers what was read.

Document types, entities, external references, processing instructions and XInclude are refused; depth, element count
and the length of every attribute and text are bounded (R3, R4). Elements remember which of their attributes, texts and
children a reader has asked for, so a loss report (R7) is what is left over, complete by construction: `report_unread`.
Numbers are strict: a pattern is matched before Python converts, because `float` also takes `1_0` and other scripts'
digits. Namespaces are not resolved: a prefix is a part of the name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from xml.sax import SAXException, SAXParseException
from xml.sax.handler import ContentHandler
from xml.sax.xmlreader import AttributesImpl

from defusedxml.common import DefusedXmlException
from defusedxml.expatreader import DefusedExpatParser

from skidpad.errors import FormatError
from skidpad.scenes.formats.source import Limits

XINCLUDE = "http://www.w3.org/2001/XInclude"

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[+-]?(?:nan|inf|infinity)", re.IGNORECASE)
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")  # 18 digits always fit into 64 bits


class Element:
    """One element: what it holds, where it stands, and what has been read of it.

    tag       name, with its prefix if it has one
    children  in file order; reading them here marks nothing, `first` and `all` do
    line      1-based line of its start tag
    source    name of the file, for messages
    """

    __slots__ = ("_attributes", "_seen", "_text", "_text_seen", "children", "line", "source", "tag", "taken")

    def __init__(self, tag: str, attributes: dict[str, str], line: int, source: str) -> None:
        self.tag = tag
        self.children: list[Element] = []
        self.line = line
        self.source = source
        self.taken = False
        self._attributes = attributes
        self._seen: set[str] | None = None
        self._text = ""
        self._text_seen = False

    @property
    def at(self) -> str:
        """Where it stands, for a loss report: the line alone, since a scene's report must not name people's folders."""
        return f"line {self.line}"

    @property
    def place(self) -> str:
        """File and line, for messages."""
        return f"{self.source}:{self.line}"

    def error(self, what: str) -> FormatError:
        """A FormatError about this element, to be raised: file, line, tag, and `what`, which says what was expected."""
        return FormatError(f"{self.place}: <{shown(self.tag)}>: {what}")

    @property
    def is_read_leaf(self) -> bool:
        """Whether there is nothing in this element that a loss report could mention: most elements of a large file."""
        return not self.children and not self._attributes and (self._text_seen or not self._text)

    # Children

    def first(self, tag: str) -> Element | None:
        """The first child of that name, or None; further ones stay unread and are reported."""
        for child in self.children:
            if child.tag == tag:
                child.taken = True
                return child
        return None

    def only(self, tag: str) -> Element:
        """The one child of that name; FormatError where there is none or more than one."""
        found = self.all(tag)
        if len(found) != 1:
            raise self.error(f"expected exactly one <{tag}>, found {len(found)}")
        return found[0]

    def all(self, *tags: str) -> list[Element]:
        """Every child with one of the names, in file order."""
        found = [child for child in self.children if child.tag in tags]
        for child in found:
            child.taken = True
        return found

    def skip(self) -> None:
        """Declare everything inside this element as read: the reader knows it and has counted it as a whole."""
        stack = [self]
        while stack:
            element = stack.pop()
            element.taken = element._text_seen = True
            element._seen = set(element._attributes)
            stack.extend(element.children)

    # Attributes

    def get(self, name: str) -> str | None:
        """An attribute, or None where it is absent."""
        if self._seen is None:
            self._seen = set()
        self._seen.add(name)
        return self._attributes.get(name)

    def require(self, name: str) -> str:
        """An attribute that must be there."""
        value = self.get(name)
        if value is None:
            raise self.error(f"attribute {name!r} is missing")
        return value

    def get_float(self, name: str) -> float | None:
        """A finite number from an attribute, or None where it is absent."""
        value = self.get(name)
        return None if value is None else self._float(value, f"attribute {name!r}")

    def require_float(self, name: str) -> float:
        """A finite number from an attribute that must be there."""
        return self._float(self.require(name), f"attribute {name!r}")

    def require_int(self, name: str) -> int:
        """An integer of at most 18 digits from an attribute that must be there."""
        return self._int(self.require(name), f"attribute {name!r}")

    # Text

    @property
    def text(self) -> str:
        """The text directly inside, without surrounding blanks."""
        self._text_seen = True
        return self._text

    def text_float(self, *, finite: bool = True) -> float:
        """The text as a number. With `finite` False, nan and inf (and numbers too large for float64) come through."""
        return self._float(self.text, "text", finite=finite)

    def text_int(self) -> int:
        """The text as an integer of at most 18 digits."""
        return self._int(self.text, "text")

    def _float(self, value: str, where: str, *, finite: bool = True) -> float:
        value = value.strip(" \t\r\n")
        number = parse_float(value)
        if number is None:
            raise self.error(f"{where} is {shown(value)!r}, expected a number like -12.5 or 3e-2")
        if finite and not math.isfinite(number):
            raise self.error(f"{where} is {shown(value)!r}, expected a finite number")
        return number

    def _int(self, value: str, where: str) -> int:
        value = value.strip(" \t\r\n")
        if not _INTEGER.fullmatch(value):
            raise self.error(f"{where} is {shown(value)!r}, expected an integer of at most 18 digits")
        return int(value)


def parse_float(value: str) -> float | None:
    """A number, possibly not finite, from text that matches the strict pattern; None where it does not."""
    if _NUMBER.fullmatch(value) or _NOT_FINITE.fullmatch(value):
        return float(value)
    return None


def shown(value: str, limit: int = 60) -> str:
    """Foreign text cut to fit into a message."""
    return value if len(value) <= limit else value[:limit] + "..."


def parse_xml(data: bytes, name: str, limits: Limits) -> Element:
    """The root element of a document.

    name  what to call the file in messages

    Raises FormatError with file and line where the document is not well-formed, uses what R4 refuses, or exceeds
    `limits`.
    """
    parser = DefusedExpatParser(forbid_dtd=True, forbid_entities=True, forbid_external=True)
    builder = _Builder(name, limits, parser.getLineNumber)
    parser.setContentHandler(builder)
    try:
        parser.feed(data)
        parser.close()
    except SAXParseException as bad:
        at = f"{name}:{max(bad.getLineNumber() or 1, 1)}: "
        raise FormatError(f"{at}not well-formed XML ({bad.getMessage()}). Is the file complete?") from bad
    except DefusedXmlException as bad:
        at = f"{name}:{parser.getLineNumber() or 1}: "
        what = type(bad).__name__.removesuffix("Forbidden")
        raise FormatError(f"{at}{what} in XML is refused. Remove the document type declaration.") from bad
    except (SAXException, LookupError, ValueError) as bad:  # an encoding that Python lacks, or not of single bytes
        if isinstance(bad, FormatError):
            raise
        raise FormatError(f"{name}:1: the XML cannot be decoded ({shown(str(bad))}). Save it as UTF-8.") from bad
    assert builder.root is not None, "expat reports a document without an element itself"
    return builder.root


class _Builder(ContentHandler):
    """Expat's events to a tree, refusing what is out of bounds as soon as it is seen."""

    def __init__(self, name: str, limits: Limits, line: Callable[[], int]) -> None:
        super().__init__()
        self.root: Element | None = None
        self._name, self._line = name, line
        self._depth, self._elements, self._length = limits.xml_depth, limits.xml_elements, limits.xml_attribute_bytes
        self._open: list[Element] = []
        self._texts: list[list[str]] = []
        self._text_lengths: list[int] = []
        self._count = 0

    def startElement(self, tag: str, attrs: AttributesImpl) -> None:
        line = self._line()
        attributes: dict[str, str] = dict(attrs.items())
        self._count += 1
        if self._count > self._elements:
            self._refuse(f"xml_elements is {self._count}, the limit is {self._elements}")
        if len(self._open) >= self._depth:
            self._refuse(f"xml_depth is {len(self._open) + 1}, the limit is {self._depth}")
        for key, value in attributes.items():  # an element without any is the common case
            if len(value) > self._length:
                self._refuse(
                    f"xml_attribute_bytes is {len(value)} in {shown(key)!r} of <{shown(tag)}>, "
                    f"the limit is {self._length}"
                )
            if value == XINCLUDE:
                self._refuse("XInclude is refused. Resolve the inclusions first")
        if tag.rpartition(":")[0] == "xi":
            self._refuse("XInclude is refused. Resolve the inclusions first")
        element = Element(tag, attributes, line, self._name)
        if self._open:
            self._open[-1].children.append(element)
        else:
            self.root = element
        self._open.append(element)
        self._texts.append([])
        self._text_lengths.append(0)

    def endElement(self, tag: str) -> None:
        element, texts = self._open.pop(), self._texts.pop()
        self._text_lengths.pop()
        if texts:
            element._text = "".join(texts).strip()

    def characters(self, content: str) -> None:
        texts = self._texts[-1]
        if not texts and content.isspace():
            return  # indentation between a million children must not pile up
        texts.append(content)
        self._text_lengths[-1] += len(content)
        if self._text_lengths[-1] > self._length:
            self._refuse(
                f"xml_attribute_bytes is exceeded by the text of <{shown(self._open[-1].tag)}>, "
                f"the limit is {self._length}"
            )

    def processingInstruction(self, target: str, data: str) -> None:
        self._refuse(f"processing instruction {shown(target)!r} is refused. Remove it")

    def skippedEntity(self, name: str) -> None:
        self._refuse(f"entity {shown(name)!r} is refused. Write its value instead")

    def _refuse(self, what: str) -> None:
        raise FormatError(f"{self._name}:{self._line()}: {what}.")


def report_unread(
    root: Element, count: Callable[[str, str], None], known: Collection[str], renamed: Mapping[str, str] | None = None
) -> None:
    """Count everything under `root` that nobody read (R7); call it when reading is over.

    count    what takes (kind, example), usually `LossReport.count`
    known    names of the format that the reader knows and does not use: `tag` or `parent/tag` for elements, `@name` or
             `tag@name` for attributes; they become `ignored_<name>`, everything else `unknown_element`,
             `unknown_attribute` or `unknown_text`
    renamed  kind by a name as in `known`, where `ignored_<name>` would not say enough

    An unread element is counted once, without what is inside it.
    """
    renamed = renamed or {}
    stack = [(root, shown(root.tag))]
    while stack:
        element, path = stack.pop()
        seen = element._seen or ()
        for name in element._attributes:
            if name in seen:
                continue
            if f"@{name}" in known or f"{element.tag}@{name}" in known or name.startswith("xmlns"):
                count(renamed.get(f"@{name}", f"ignored_{name}"), f"{element.at}: {path}@{name}")
            else:
                count("unknown_attribute", f"{element.at}: {path}@{shown(name)}")
        if element._text and not element._text_seen:
            count("unknown_text", f"{element.at}: {path}: {shown(element._text)}")
        inner = []
        for child in element.children:
            if child.taken:
                if not child.is_read_leaf:
                    inner.append((child, f"{path}/{shown(child.tag)}"))
            elif child.tag in known or f"{element.tag}/{child.tag}" in known:
                kind = renamed.get(child.tag, f"ignored_{child.tag}")
                count(kind, f"{child.at}: {path}/{child.tag}")
            else:
                count("unknown_element", f"{child.at}: {path}/{shown(child.tag)}")
        stack.extend(reversed(inner))  # in file order, so that the examples are the first ones of the file
