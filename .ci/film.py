"""Films the live page for README, and takes the preview picture of links: python .ci/film.py (Chromium is needed).

A sentence is typed, the edge from *it* to its noun is cut, and the German pronoun changes. Writes
figures/look-inside.webp and figures/preview.png.
"""
import base64
import io
import sys
import tempfile
from pathlib import Path

from PIL import Image, ImageDraw

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from browser import Page, browser  # noqa: E402

SENTENCE, EDGE = "The dog is old, but it plays.", '[data-q="6"][data-k="1"]'
WIDTH, HEIGHT, SHOWN = 960, 1000, 0.75
ARROW = [(0, 0), (0, 17), (4, 13), (7, 19), (10, 18), (7, 12), (12, 12)]


class Film:
    "Frames of a page, each with the pointer drawn in and the milliseconds that it stands."

    def __init__(self, page: Page):
        self.page, self.at, self.frames, self.times = page, (760, 500), [], []

    def picture(self) -> Image.Image:
        shot = base64.b64decode(self.page.call("Page.captureScreenshot", format="png")["data"])
        return Image.open(io.BytesIO(shot)).convert("RGB")

    def frame(self, milliseconds: int) -> None:
        image = self.picture()
        points = [(self.at[0] + x, self.at[1] + y) for x, y in ARROW]
        ImageDraw.Draw(image).polygon(points, fill="black", outline="white")
        self.frames.append(image.resize((round(WIDTH * SHOWN), round(HEIGHT * SHOWN)), Image.Resampling.LANCZOS))
        self.times.append(milliseconds)

    def move(self, x: float, y: float, steps: int = 5) -> None:
        begin = self.at
        for step in range(1, steps + 1):
            self.at = tuple(a + (b - a) * step / steps for a, b in zip(begin, (x, y)))
            self.page.mouse("mouseMoved", *self.at)
            self.frame(60)

    def middle(self, selector: str) -> tuple[float, float]:
        return tuple(self.page.js(
            f"(() => {{ const e = document.querySelector('{selector}'), r = e.getBoundingClientRect();"
            "if (!e.getPointAtLength) return [r.x + r.width / 2, r.y + r.height / 2];"
            "const p = e.getPointAtLength(e.getTotalLength() * 0.3).matrixTransform(e.getScreenCTM());"
            "return [p.x, p.y]; })()"))

    def click(self, selector: str, wait: int) -> None:
        self.move(*self.middle(selector))
        self.page.click(*self.at)
        self.page.js("new Promise(done => setTimeout(done, 700))")
        self.frame(wait)


def main() -> None:
    from annotated_transformer.decoding.translation import load
    from annotated_transformer.inside import explore
    with tempfile.TemporaryDirectory() as folder, browser(Path(folder) / "profile") as page:
        file = Path(folder) / "page.html"
        file.write_text(explore.page(load("grammar")), encoding="utf-8")
        page.size(WIDTH, HEIGHT)
        page.open(file.as_uri(), f"document.querySelector('#figure path{EDGE}')")
        film = Film(page)
        page.js("document.querySelector('#text').value = '', document.querySelector('#text').focus()")
        for end in range(0, len(SENTENCE), 3):
            page.js(f"document.querySelector('#text').value = {SENTENCE[:end + 3]!r}, 0")
            film.frame(90)
        film.click("button.first", 1600)
        film.click(f"#figure path.hit{EDGE}", 1200)
        film.click("#cut", 3500)
        film.frames[0].save(ROOT / "figures" / "look-inside.webp", save_all=True, append_images=film.frames[1:],
                            duration=film.times, loop=0, quality=72, method=6)
        page.size(1200, 630)
        page.js("scrollTo(0, 0), document.body.style.zoom = 1.25, new Promise(done => setTimeout(done, 500))")
        film.picture().save(ROOT / "figures" / "preview.png", optimize=True)


if __name__ == "__main__":
    main()
