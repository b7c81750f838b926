"""Sections of the page, one module each: what they show of a library, or nothing where it holds nothing of theirs."""

from __future__ import annotations

from dataclasses import dataclass

from rankscope_eval.page.html import Child


@dataclass(frozen=True)
class Section:
    """One section.

    Attributes:
        name: its anchor.
        title: its heading.
        short: its name in the navigation.
        content: what it shows; empty sections are left out.
    """

    name: str
    title: str
    short: str
    content: tuple[Child, ...]


__all__ = ["Section"]
