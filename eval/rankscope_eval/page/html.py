"""HTML from nested calls: every text is escaped, only what these functions made is markup."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import TypeAlias

_VOID = frozenset({"meta", "link", "br", "hr", "col"})


class Markup(str):
    """Text that is markup already; every other ``str`` is escaped when it becomes a child."""

    __slots__ = ()


Child: TypeAlias = "str | Iterable[Child] | None"


def element(tag: str, *children: Child, **attributes: str | int | bool | None) -> Markup:
    """One element.

    Args:
        tag: its name.
        children: texts, markup, or iterables of them; None is left out.
        attributes: an underscore at the end is dropped, others become hyphens; False and None are left out.

    >>> element("p", "a < b", class_="note")
    '<p class="note">a &lt; b</p>'
    """
    opening = tag + "".join(_attribute(name, value) for name, value in attributes.items())
    if tag in _VOID:
        return Markup(f"<{opening}>")
    return Markup(f"<{opening}>{join(*children)}</{tag}>")


def join(*children: Child) -> Markup:
    """Children one after the other.

    >>> join("a", None, ["<", element("b", "c")])
    'a&lt;<b>c</b>'
    """
    return Markup("".join(_text(child) for child in children))


def _text(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Markup):
        return str(child)
    if isinstance(child, str):
        return html.escape(printable(child), quote=False)
    return join(*child)


def _attribute(name: str, value: str | int | bool | None) -> str:
    if value is None or value is False:
        return ""
    key = name.rstrip("_").replace("_", "-")
    return f" {key}" if value is True else f' {key}="{html.escape(printable(str(value)))}"'


def printable(text: str) -> str:
    """Put for control characters and lone surrogates, which HTML cannot hold,, the replacement character."""
    return "".join(
        c if c in "\n\t" or (c >= " " and not "\ud800" <= c <= "\udfff" and c != "\x7f") else "\ufffd" for c in text
    )
