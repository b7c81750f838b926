"""Output that a page shows: whether it is what came out, and what came out in its form.

In shown output a line ``…`` stands for any lines, ``…`` inside a line for any characters.
"""

from __future__ import annotations

import re

WILD = "…"
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
_EXACT = 2
"""Digits of numbers that never differ."""
_LABEL = re.compile(r" *\S+(?: \S+)*(?=  )")
"""First column of a table."""


def matches(shown: str, output: str, share: float = 0.0) -> bool:
    r"""True if an output is the one that is shown, wildcards and blanks at line ends aside.

    With a share above 0 numbers of three digits and more may differ by it, or by one in the last digit shown, and
    columns by their blanks.

    >>> matches("a\n…\nrank … of 64", "a\nb\nc\nrank 5 of 64\n")
    True
    >>> matches("WQL 1.018", "WQL  1.019", 0.02), matches("WQL 1.018", "WQL  1.2", 0.02)
    (True, False)
    """
    pattern = ""
    for line in clean(shown):
        if line.strip() == WILD:
            pattern += r"(?:.*\n)*?"
        else:
            pattern += ".*?".join(_pattern(part, share) for part in line.split(WILD)) + r"\n"
    found = re.fullmatch(pattern, "".join(f"{line}\n" for line in clean(output)))
    if found is None:
        return False
    told = [one for line in clean(shown) for one in _NUMBER.findall(line)] if share else []
    return all(_near(ours, theirs, share) for ours, theirs in zip(told, found.groups(), strict=True))


def _pattern(text: str, share: float) -> str:
    if not share:
        return re.escape(text)
    pieces = [re.sub(r"(?:\\ )+", " +", re.escape(piece)) for piece in _NUMBER.split(text)]
    return f"({_NUMBER.pattern})".join(pieces)


def _near(shown: str, found: str, share: float) -> bool:
    ours, theirs = (float(text.replace(",", "")) for text in (shown, found))
    digits, _, power = shown.partition("e")
    if sum(one.isdigit() for one in digits) <= _EXACT:
        return ours == theirs
    last = 10.0 ** (int(power or 0) - len(digits.partition(".")[2]))
    return abs(ours - theirs) <= max(share * abs(ours), 1.001 * last)


def clean(text: str) -> list[str]:
    """Lines without blanks at their ends, and without empty ones around them."""
    return [line.rstrip() for line in text.strip("\n").splitlines()]


def renewed(shown: str, output: str) -> str | None:
    r"""Output in the form of the shown one: its wildcards stay, its numbers are those of the output.

    Lines are found by their words. Where several fit, the one of the same short numbers is taken before one of the same
    first column, and that before any other. None where the output has another form.

    >>> renewed("rank  34\nsize  0.36\n…", "rank  7\nsize  0.41\ntime  2")
    'rank  7\nsize  0.41\n…'
    >>> renewed("a,36…\nb …", "a,41.27\nb c"), renewed("rank 34", "ranks: 7")
    ('a,41…\nb …', None)
    """
    rows = clean(shown)
    for strictness in (2, 1, 0):
        pattern = "".join(_form(row, strictness) for row in rows)
        found = re.fullmatch(pattern, "".join(f"{line}\n" for line in clean(output)))
        if found is not None:
            groups = iter(found.groups())
            return "\n".join(WILD.join(next(groups) or "" for _ in row.split(WILD)) for row in rows)
    return None


def _form(row: str, strictness: int) -> str:
    """Pattern of a shown line with a group for each part between wildcards, any number in the place of a number."""
    if row.strip() == WILD:
        return r"()(?:.*\n)*?()"
    parts, label = row.split(WILD), _LABEL.match(row)
    pieces = []
    for at, part in enumerate(parts):
        fixed = label.end() if label and at == 0 and strictness else 0
        piece = re.escape(part[:fixed])
        place = fixed
        for number in _NUMBER.finditer(part, fixed):
            piece += re.escape(part[place : number.start()])
            cut = number.end() == len(part) and at < len(parts) - 1
            exact = strictness == 2 and not cut and sum(one.isdigit() for one in number[0]) <= _EXACT
            piece += re.escape(number[0]) if exact else rf"[\d,.]{{{len(number[0])}}}" if cut else _NUMBER.pattern
            place = number.end()
        flexible = re.sub(r"(?:\\ )+", " +", piece + re.escape(part[place:]))
        pieces.append(f"({re.sub('─+', '─+', flexible)})")
    return ".*?".join(pieces) + r"\n"
