"""Screenshots of the example report: light and dark, twice the size of the screen.

python docs/examples/screenshots.py [PAGE] [FOLDER]
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

HERE = Path(__file__).resolve().parent
WIDTH, HEIGHT = 1060, 1420
COLOURS = 128


def main(page: Path, folder: Path) -> None:
    """Take both and keep them small: the page has few colours."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            size = {"width": WIDTH, "height": HEIGHT}
            context = chromium.new_context(viewport=size, device_scale_factor=2, color_scheme=scheme)
            context.set_default_timeout(300_000)
            tab = context.new_page()
            tab.goto(page.resolve().as_uri())
            file = folder / f"report-{scheme}.png"
            tab.screenshot(path=file)
            with Image.open(file) as picture:
                few = picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
            few.save(file, optimize=True)
            print(file, file.stat().st_size)
        chromium.close()


if __name__ == "__main__":
    given = [Path(word) for word in sys.argv[1:]]
    places = [*given, *[HERE / "bundled-report.html", HERE.parents[1] / "figures" / "out"][len(given) :]]
    main(places[0], places[1])
