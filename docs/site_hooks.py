"""Hooks of mkdocs: reference of the command line, formulas as MathML, files of the repository, notes on blocks.

The reference comes from the Typer app when the site is built, so it cannot fall behind. Formulas become MathML, which
browsers draw without a script. A link that leaves ``docs/`` for a file of the repository gets a copy of that file.
"""

from __future__ import annotations

import html
import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from rankscope_cli.app import VERBS, load_verb
from rankscope_cli.verbs.lab import EXPERIMENTS

log = get_plugin_logger("site_hooks")  # a warning ends `mkdocs build --strict`
COMMAND_LINE = "Command line"
CHANGELOG = "reference/changelog.md"
COMMANDS = [*VERBS, *(f"lab_{name}" for name in EXPERIMENTS)]
"""Modules of verbs and sub-verbs that have a page."""
_KINDS = {"argument": "Arguments", "option": "Options"}
_RANGE = re.compile(r"(?<=\d)–(?=\d)")
"""Does not break across lines, once word joiners stand beside its dash."""
_FORMULA = re.compile(r'<(span|div) class="arithmatex">(.*?)</\1>', re.DOTALL)
_BARS = re.compile(r"(?<!\\left)(?<!\\right)\\([lr])([vV])ert")
_UNKNOWN = re.compile(r">\\[a-zA-Z]+")
_OUTWARD = re.compile(r"(\]\()((?:\.\./)+[^)\s#]+)(#[^)\s]*)?(\))")
_FROM_ROOT = re.compile(r"(\]\()docs/")
_NOT_RUN = re.compile(r"^( *)<!-- *not-run: *(.*?) *-->$", re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put one page per verb under the heading of the command line."""
    pages = [f"reference/cli/{name}.md" for name in COMMANDS]
    for section in config.nav or []:
        for entry in next(iter(section.values())) if isinstance(section, dict) else []:
            if isinstance(entry, dict) and COMMAND_LINE in entry:
                entry[COMMAND_LINE] = pages
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the verbs."""
    for name in COMMANDS:
        files.append(File.generated(config, f"reference/cli/{name}.md", content=verb_page(name)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Copy files of the repository that the page links to, and say which blocks were not run and why."""
    home = Path(config.docs_dir)
    if page.file.src_uri == CHANGELOG:
        markdown = _FROM_ROOT.sub(r"\1../", (home.parent / "CHANGELOG.md").read_text(encoding="utf-8"))

    def copied(link: re.Match[str]) -> str:
        opening, path, anchor, closing = link.groups()
        target = (home / page.file.src_uri).parent.joinpath(path).resolve()
        if target.is_relative_to(home) or not target.is_relative_to(home.parent) or not target.is_file():
            return link[0]  # mkdocs checks it
        name = f"files/{target.relative_to(home.parent).as_posix()}"
        name += ".txt" if target.suffix == ".md" else ""  # or mkdocs takes it for a page
        if files.get_file_from_path(name) is None:
            files.append(File.generated(config, name, abs_src_path=str(target)))
        return f"{opening}{'../' * page.file.src_uri.count('/')}{name}{anchor or ''}{closing}"

    note = r'\1<small class="not-run">Not run when this site was built: \2.</small>\n'
    return _NOT_RUN.sub(note, _OUTWARD.sub(copied, markdown))


def on_page_content(content: str, page: Page, **_: Any) -> str:
    """Turn what arithmatex found between dollars into MathML, and keep ranges of numbers on one line."""

    def mathml(formula: re.Match[str]) -> str:
        latex = _BARS.sub(_paired, html.unescape(formula[2]).strip())
        drawn = convert(latex[2:-2], display="block" if formula[1] == "div" else "inline")
        if unknown := _UNKNOWN.search(drawn):
            log.warning("%s: no MathML for %s in %s", page.file.src_uri, unknown[0][1:], latex)
        return drawn

    return _RANGE.sub("&#8288;–&#8288;", _FORMULA.sub(mathml, content))


def _paired(bar: re.Match[str]) -> str:
    # In pairs bars grow with what is between them, and an index belongs to both.
    return rf"\{'left' if bar[1] == 'l' else 'right'}{bar[0]}"


def verb_page(name: str) -> str:
    """Write the reference of one verb, or sub-verb, from its command and its docstring."""
    command, words = load_verb(name), name.replace("_", " ")
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    usage = " ".join(_in_usage(one) for one in arguments)
    rows = [(_panel(one), _row(one)) for one in command.params]
    doc = inspect.cleandoc(import_module(f"rankscope_cli.verbs.{name}").run.__doc__)
    text, _, examples = doc.partition("\n\nExamples:\n")
    called = " ".join(f"rankscope {words} [OPTIONS] {usage}".split())
    parts = [f"# rankscope {words}", f"```text\n{called}\n```", _flags_as_code(text)]
    if examples:
        lines = "\n".join(f"$ {line.strip()}" for line in examples.splitlines())
        parts.append(f"## Examples\n\n```console\n{lines}\n```")
    for panel in dict.fromkeys(panel for panel, _ in rows):
        table = "\n".join(row for home, row in rows if home == panel)
        parts.append(f"## {panel}\n\n| Name | Value | Meaning |\n|---|---|---|\n{table}")
    return "\n\n".join(parts) + "\n"


def _in_usage(argument: Any) -> str:
    name = argument.metavar if argument.required else f"[{argument.metavar}]"
    return name if argument.nargs == 1 else f"{name}..."


def _panel(parameter: Any) -> str:
    return getattr(parameter, "rich_help_panel", None) or _KINDS[parameter.param_type_name]


def _row(parameter: Any) -> str:
    value, meaning = "", [parameter.help or ""]
    if parameter.param_type_name == "argument":
        names = [parameter.metavar]
    else:
        names = sorted((*parameter.opts, *parameter.secondary_opts), key=len, reverse=True)
        value = parameter.metavar or ""
    if parameter.required:
        meaning.append("Required.")
    elif parameter.show_default and value and parameter.default not in (None, ""):
        meaning.append(f"Default: `{parameter.default}`.")
    cells = (", ".join(f"`{name}`" for name in names), f"`{value}`" if value else "", _flags_as_code(" ".join(meaning)))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _flags_as_code(text: str) -> str:
    return re.sub(r"(?<![\w`-])--[a-z][a-z-]*", r"`\g<0>`", text)
