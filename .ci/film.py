"""Films the playground for README, and takes the preview picture of links: python .ci/film.py (Chromium is needed).

Train is pressed, and ten seconds show what it learns, however fast this machine is. Writes figures/playground.webp,
figures/preview.png, and the still picture that a saved notebook keeps, resources/page/playground.webp.
"""
import base64
import io
import sys
import tempfile
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from browser import Page, browser  # noqa: E402

WIDTH, HEIGHT, SHOWN = 1180, 830, 0.62
EVERY, LAST = 12, 312  # updates


def picture(page: Page) -> Image.Image:
    shot = base64.b64decode(page.call("Page.captureScreenshot", format="png")["data"])
    return Image.open(io.BytesIO(shot)).convert("RGB")


def main() -> None:
    from annotated_transformer.inside.playground import PAGE, playground_page
    with tempfile.TemporaryDirectory() as folder, browser(Path(folder) / "profile") as page:
        file = Path(folder) / "page.html"
        file.write_text(playground_page().replace("EVERY = 500", "EVERY = Infinity"), encoding="utf-8")
        page.size(WIDTH, HEIGHT)
        page.open(file.as_uri(), "document.body.dataset.ready")
        frames = [picture(page)]
        page.js("running = true, 0")
        for step in range(EVERY, LAST + 1, EVERY):
            page.js(f"ask('train', {{until: {step}}}).then(show)")
            page.js("$('numbers').lastChild.hidden = true, 0")  # seconds of this machine are nobody else's
            frames.append(picture(page))
            print(f"{step} updates", end="\r", flush=True)
        small = [frame.resize((round(WIDTH * SHOWN), round(HEIGHT * SHOWN)), Image.Resampling.LANCZOS)
                 for frame in frames]
        times = [900, *[300] * (len(small) - 2), 2500]
        small[0].save(ROOT / "figures" / "playground.webp", save_all=True, append_images=small[1:], duration=times,
                      loop=0, quality=60, method=6)
        small[-1].save(Path(str(PAGE)) / "playground.webp", quality=60, method=6)
        page.size(1200, 630)
        page.js("new Promise(done => setTimeout(done, 500))")
        picture(page).save(ROOT / "figures" / "preview.png", optimize=True)


if __name__ == "__main__":
    main()
