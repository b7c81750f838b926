"""The page in headless Chromium: it sorts, turns dark, prints, and axe-core finds no serious fault."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: `make browser` installs Debian's"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def opened(browser: Any, page_file: Path) -> Iterator[Any]:
    """``opened(color_scheme="dark")``: the page; nothing may be asked of a network or said on the console."""
    contexts, said, asked = [], [], []

    def open_page(**settings: Any) -> Any:
        contexts.append(browser.new_context(**settings))
        contexts[-1].set_default_timeout(120_000)  # a busy machine is not a fault of the page
        tab = contexts[-1].new_page()
        tab.on("console", lambda message: said.append(message.text))
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.on("request", lambda request: asked.append(request.url))
        tab.goto(page_file.as_uri())
        return tab

    yield open_page
    for context in contexts:
        context.close()
    assert said == []
    assert set(asked) <= {page_file.as_uri(), "data:,"}


def column(tab: Any, table: str, head: str) -> list[str]:
    return tab.evaluate(
        """([name, head]) => {
            const table = document.getElementById(name).closest("table");
            const at = [...table.tHead.rows[0].cells].findIndex((cell) => cell.textContent === head);
            return [...table.tBodies[0].rows].map((row) => row.cells[at].textContent);
        }""",
        [f"{table}-caption", head],
    )


def test_tables_sort_by_their_numbers_by_mouse_and_by_keyboard(opened: Any) -> None:
    tab = opened()
    tab.locator("summary", has_text="of spectrum.json").click()
    head = tab.get_by_role("region", name="of every matrix of chronos-bolt").get_by_role("button", name="σ₁")
    before = [float(cell) for cell in column(tab, "spectrum-0-0-table", "σ₁")]
    assert before != sorted(before)
    head.click()
    assert [float(cell) for cell in column(tab, "spectrum-0-0-table", "σ₁")] == sorted(before)
    assert head.locator("xpath=..").get_attribute("aria-sort") == "ascending"
    head.press("Enter")
    assert [float(cell) for cell in column(tab, "spectrum-0-0-table", "σ₁")] == sorted(before, reverse=True)
    assert head.locator("xpath=..").get_attribute("aria-sort") == "descending"


def test_rows_stay_whole_and_what_is_missing_sorts_last(opened: Any) -> None:
    tab = opened()
    tab.locator("summary", has_text="of spectrum.json").click()
    body = "document.getElementById('spectrum-0-0-table-caption').closest('table').tBodies[0]"
    rows = f"[...{body}.rows].map(row => row.textContent)"
    before = tab.evaluate(rows)
    head = tab.get_by_role("region", name="of every matrix of chronos-bolt").get_by_role("button", name="per head, 0.5")
    for _ in range(2):
        head.click()
        cells = column(tab, "spectrum-0-0-table", "per head, 0.5")
        known = [cell != "–" for cell in cells]
        assert known == sorted(known, reverse=True)
        assert not all(known)
        assert sorted(tab.evaluate(rows)) == sorted(before)


def test_the_theme_follows_the_system_and_the_button_turns_it(opened: Any) -> None:
    def paper(tab: Any) -> str:
        return tab.evaluate("getComputedStyle(document.body).backgroundColor")

    light, dark = opened(color_scheme="light"), opened(color_scheme="dark")
    assert paper(light) == "rgb(255, 255, 255)"
    assert paper(dark) != paper(light)
    button = light.get_by_role("button", name="Dark")
    assert button.get_attribute("aria-pressed") == "false"
    button.click()
    assert paper(light) == paper(dark)
    assert button.get_attribute("aria-pressed") == "true"
    ink = "getComputedStyle(document.querySelector('.chart text')).fill"
    assert light.evaluate(ink) == dark.evaluate(ink) != "rgb(0, 0, 0)"
    button.click()
    assert paper(light) == "rgb(255, 255, 255)"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_fault(opened: Any, scheme: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    tab = opened(color_scheme=scheme)
    tab.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    found = Axe().run(tab).response
    serious = [one["id"] for one in found["violations"] if one["impact"] in ("serious", "critical")]
    assert serious == []
    assert len(found["passes"]) > 20
    assert "color-contrast" in {one["id"] for one in found["passes"]}


@pytest.mark.parametrize("width", [320, 390, 768])
def test_a_narrow_window_does_not_scroll_sideways(opened: Any, width: int) -> None:
    tab = opened(viewport={"width": width, "height": 800})
    tab.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert tab.evaluate("document.documentElement.scrollWidth") == width


def test_it_prints_with_everything_open_and_in_light(opened: Any) -> None:
    tab = opened(color_scheme="dark")
    printed = tab.pdf(format="A4")
    assert printed.startswith(b"%PDF")
    assert len(printed) > 20_000
    assert tab.locator("details[open]").count() == 0  # closed again
    tab.emulate_media(media="print")
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not tab.get_by_role("button", name="Dark").is_visible()
    tab.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert tab.locator("details:not([open])").count() == 0


def test_everything_is_there_without_a_script(opened: Any) -> None:
    tab = opened(java_script_enabled=False)
    assert tab.locator("section").count() == 7
    assert tab.locator("nav button").is_hidden()
    assert tab.locator("thead button").count() == 0
