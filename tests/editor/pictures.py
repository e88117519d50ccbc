"""The pictures of the documentation, taken in a real VS Code: `pictures.py [NAME ...]` takes those, or all of them.

Each is a function of `scenes` that brings a window to what is worth looking at. Nothing is drawn by hand, so a picture
shows what a person gets; `make pictures` takes them all again.
"""

import shutil
import sys
import tempfile
import traceback
from io import BytesIO
from pathlib import Path
from typing import Any

import code_server
from PIL import Image
from playwright.sync_api import Browser, sync_playwright
from scenes import SCENES, Scene
from window import Window

IMAGES = code_server.ROOT / "docs" / "images"
CHROMIUM = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
#: What a reader has no use for stays out of the frame.
FRAME: dict[str, Any] = {
    "workbench.activityBar.location": "hidden",
    "workbench.layoutControl.enabled": False,
    "workbench.editor.editorActionsLocation": "hidden",
    "breadcrumbs.enabled": False,
    "editor.fontSize": 14,
    "editor.folding": False,
    "editor.glyphMargin": False,
    "editor.lightbulb.enabled": "off",
    "editor.lineNumbersMinChars": 5,
    "editor.guides.indentation": False,
    "editor.overviewRulerBorder": False,
    "editor.overviewRulerLanes": 0,
    "editor.hideCursorInOverviewRuler": True,
    "editor.matchBrackets": "never",
    "editor.scrollbar.vertical": "hidden",
    "editor.scrollbar.horizontal": "hidden",
    "editor.renderLineHighlight": "none",
    "mase.interpreter": sys.executable,
}
#: An editor has few colours: a palette keeps its letters sharp at a fifth of the bytes.
COLOURS = 200
LARGEST_PICTURE = 200_000
LARGEST_FILM = 3_000_000


def main(names: list[str]) -> int:
    """Take the pictures with these names, or all; 1 if one failed or is too large for a page."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="mase-pictures-") as home, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=CHROMIUM)
        with code_server.running(Path(home), **FRAME) as server:
            window = opened(browser, server, Path(home) / "examples")
            paths = [taken(window, scene) for scene in SCENES if not names or scene.name in names]
    return int(not all(paths))


def opened(browser: Browser, server: code_server.CodeServer, folder: Path) -> Window:
    """A window without anything beside its editors."""
    folder.mkdir()
    context = browser.new_context(device_scale_factor=2, permissions=["clipboard-read", "clipboard-write"])
    window = Window(context.new_page(), server.url(folder), folder)
    window.command("View: Close Primary Side Bar")
    return window


def taken(window: Window, scene: Scene) -> bool:
    """One picture, of an example that nobody else has open; of one that fails, what was on the screen."""
    window.page.set_viewport_size({"width": scene.width, "height": scene.height})
    window.begin(scene.name)
    try:
        frames = Frames(window)
        window.open(scene.file)
        window.expect_status("MASE: ready")
        scene.play(window, frames.keep)
        path = written(scene.name, frames.taken)
    except Exception:  # noqa: BLE001 - the others can still be taken
        print(f"{scene.name}: {traceback.format_exc()}see {window.picture(f'failed-{scene.name}')}", flush=True)
        window.reset()
        return False
    size = path.stat().st_size
    print(f"{path.relative_to(code_server.ROOT)}: {size / 1000:.0f} kB", flush=True)
    window.reset()
    return size <= limit(path)


class Frames:
    """What a scene keeps: one frame makes a picture, several make a film."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self.taken: list[tuple[Image.Image, int]] = []

    def keep(self, milliseconds: int = 0) -> None:
        """The window as it stands, to be seen so long."""
        shot = self._window.page.screenshot(animations="disabled", caret="initial")
        self.taken.append((Image.open(BytesIO(shot)).convert("RGB"), milliseconds))


def written(name: str, frames: list[tuple[Image.Image, int]]) -> Path:
    """A PNG of one frame, a GIF of several; all frames have one palette, so that nothing flickers."""
    images = [image for image, _ in frames]
    palette = sheet(images).quantize(COLOURS if len(images) == 1 else 128, dither=Image.Dither.NONE)
    flat = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
    if len(flat) == 1:
        path = IMAGES / f"{name}.png"
        flat[0].save(path, optimize=True)
        return path
    path = IMAGES / f"{name}.gif"
    durations = [milliseconds for _, milliseconds in frames]
    flat[0].save(path, save_all=True, append_images=flat[1:], duration=durations, loop=0, optimize=False, disposal=1)
    return path


def sheet(images: list[Image.Image]) -> Image.Image:
    """All frames below each other, every colour of theirs in one image."""
    width, height = images[0].size
    whole = Image.new("RGB", (width, height * len(images)))
    for row, image in enumerate(images):
        whole.paste(image, (0, row * height))
    return whole


def limit(path: Path) -> int:
    """The most bytes that a page should load for it."""
    return LARGEST_FILM if path.suffix == ".gif" else LARGEST_PICTURE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
