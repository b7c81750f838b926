"""Matplotlib figures as part of the page: text stays text, ids are the chart's own, colours follow the theme."""

from __future__ import annotations

import colorsys
import io
import re
from collections.abc import Callable
from xml.etree import ElementTree as ET

from markupsafe import Markup, escape
from matplotlib.figure import Figure

from rankscope.plots import styled
from rankscope_eval.page.parts import printable, unbroken

_SVG, _XLINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}"
_HEX = re.compile(r"#[0-9a-fA-F]{6}\b|#[0-9a-fA-F]{3}\b|(?<=[:\s])(?:black|white)\b")
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_ELEMENTS = frozenset(
    (
        *("g", "path", "text", "tspan", "use", "defs", "clipPath"),
        *("rect", "line", "polyline", "polygon", "circle", "ellipse"),
    )
)
_PLACES = ("x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "rx", "ry", "width", "height", "points", "d", "transform")
_ATTRIBUTES = frozenset((*_PLACES, "id", "style", "clip-path", "href"))


def chart(draw: Callable[[], Figure], name: str, title: str, says: str, caption: str = "") -> Markup:
    """A figure of the page.

    Args:
        draw: makes the figure, by `rankscope.plots` or in its style.
        name: unique on the page; every id of the drawing begins with it.
        title: what is drawn.
        says: what a reader who does not see it should know.
        caption: shown below; the title by default.
    """
    try:
        drawing = _drawing(draw(), name, title, says)
    except (ValueError, ArithmeticError, ET.ParseError):
        # numbers beyond what axes can hold; the tables show them all the same
        drawing = Markup('<p class="note">These numbers cannot be drawn.</p>')
    figure = Markup('<figure class="chart">{}<figcaption>{}</figcaption></figure>')
    return figure.format(drawing, unbroken(printable(caption or title)))


def _drawing(figure: Figure, name: str, title: str, says: str) -> Markup:
    stream = io.BytesIO()
    with styled():
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    root = ET.fromstring(stream.getvalue())
    inner = "".join(_markup(child, name) for child in root)
    width = float(root.attrib["viewBox"].split()[2])
    svg = Markup(
        '<svg viewBox="{box}" role="img" aria-labelledby="{name}-title" aria-describedby="{name}-desc" '
        'style="max-width:{width:.3f}rem"><title id="{name}-title">{title}</title>'
        '<desc id="{name}-desc">{says}</desc>{inner}</svg>'
    )
    known = {"title": printable(title), "says": printable(says), "inner": Markup(inner), "width": width * 2 / 16}
    return svg.format(box=root.attrib["viewBox"], name=name, **known)


def _markup(node: ET.Element, name: str) -> str:
    tag = node.tag.removeprefix(_SVG)
    if tag not in _ELEMENTS:
        return ""
    attributes = "".join(_attribute(key, value, name) for key, value in node.attrib.items())
    text = escape(node.text if tag in ("text", "tspan") else node.text.strip()) if node.text else ""
    inner = "".join(_markup(child, name) for child in node)
    if tag in ("g", "defs") and not inner:
        return ""
    return f"<{tag}{attributes}/>" if not text + inner else f"<{tag}{attributes}>{text}{inner}</{tag}>"


def _attribute(key: str, value: str, name: str) -> str:
    plain = key.removeprefix(_XLINK)
    if plain not in _ATTRIBUTES:
        return ""
    if plain == "id":
        value = f"{name}-{_safe(value)}"
    elif plain == "href":
        value = "#" + f"{name}-{_safe(value.removeprefix('#'))}"
    elif plain == "clip-path":
        value = _REFERENCE.sub(lambda found: f"url(#{name}-{_safe(found[1])})", value)
    elif plain == "style":
        value = _HEX.sub(lambda found: themed(found[0]), value)
    return f' {plain}="{escape(" ".join(value.split()))}"'


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "-", name)


def themed(colour: str) -> str:
    """A colour as CSS: ink and paper by name, others with a lighter twin that stands out on dark paper.

    The twin's lightness falls where the colour's rises, so an order by lightness survives.

    >>> themed("#000000"), themed("#fff"), themed("#12355b")
    ('var(--ink)', 'var(--paper)', 'light-dark(#12355b,#afcdef)')
    """
    full = {"black": "#000000", "white": "#ffffff"}.get(colour, colour).lower()
    if len(full) == 4:
        full = "#" + "".join(2 * digit for digit in full[1:])
    if full in ("#000000", "#ffffff"):
        return "var(--ink)" if full == "#000000" else "var(--paper)"
    red, green, blue = (int(full[at : at + 2], 16) / 255 for at in (1, 3, 5))
    hue, lightness, saturation = colorsys.rgb_to_hls(red, green, blue)
    twin = colorsys.hls_to_rgb(hue, 0.95 - 0.65 * lightness, saturation)
    return f"light-dark({full},#{''.join(f'{round(255 * part):02x}' for part in twin)})"
