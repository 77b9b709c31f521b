"""Takes the pictures in docs/screenshots: ``python tests/page/take_screenshots.py``.

Three widths, both themes, four pages each, of a real service with real jobs.
"""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import numpy as np
from page_service import ServiceProcess
from page_steps import give, wait_text
from PIL import Image
from playwright.sync_api import sync_playwright

OUT = Path(__file__).parents[2] / "docs" / "screenshots"
SIZES = {360: 740, 800: 900, 1280: 860}
RESULT = {360: 1440, 800: 1400, 1280: 1330}  # down to the picture
COLOURS = 56  # enough for text and curves, and a third of the bytes


def moons(seed: int, n: int, flip: bool) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, np.pi, n)
    x, y = np.cos(angle), np.sin(angle)
    if flip:
        x, y = 1 - x, 0.45 - y
    return np.column_stack([x, y]) + rng.normal(0, 0.08, (n, 2))


def shoot(page: Any, name: str) -> None:
    page.evaluate("window.scrollTo(0, 0); document.activeElement.blur()")
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(OUT / f"{name}.png", optimize=True)


def visit(page: Any, url: str, files: tuple[str, str], ids: dict[str, str], tail: str) -> None:
    page.goto(f"{url}/#/new")
    page.locator("main[data-page=new]").wait_for()
    give(page, "First set", files[0])
    give(page, "Second set", files[1])
    wait_text(page, "#estimate", "Memory")
    shoot(page, f"new-{tail}")
    page.goto(f"{url}/#/jobs")
    page.locator("tbody tr").nth(5).wait_for()
    shoot(page, f"jobs-{tail}")
    page.goto(f"{url}/#/jobs/{ids['running']}")
    page.get_by_role("img", name="Epsilon").locator("canvas").wait_for()
    page.wait_for_timeout(500)
    shoot(page, f"running-{tail}")
    page.goto(f"{url}/#/jobs/{ids['done']}")
    page.locator("#matching[data-drawn]").wait_for()
    width = page.viewport_size["width"]
    page.set_viewport_size({"width": width, "height": RESULT[width]})
    page.wait_for_timeout(200)
    shoot(page, f"result-{tail}")


def slow_job(label: str, rows: int = 30_000) -> dict[str, Any]:
    """Minutes of work unless it is stopped: rows without structure, and no room to keep them.

    With 9,000 rows the search begins after seconds, and lasts some.
    """
    code = "(sin(12.9898*i + 78.233*j + 0.001*i*j) * 43758.5453) % 1"
    return {
        "shape": [rows, rows],
        "cost": {"type": "expression", "code": code},
        "options": {"method": "ssp", "checkpoint_s": 1, "threads": 1, "cache": "8MiB"},
        "label": label,
    }


def submit_all(service: ServiceProcess) -> dict[str, str]:
    x, y = moons(1, 400, False), moons(2, 400, True)
    cost = {"type": "points", "metric": "euclidean"}
    done = {"cost": cost | {"x": x.tolist(), "y": y.tolist()}, "label": "two moons"}
    ids = {"done": service.submit(done)}
    for label, code in (("rank one", "i*j"), ("bad input", "sqrt(5 - i)")):
        service.submit({"shape": [40, 40], "cost": {"type": "expression", "code": code}, "label": label})
    gated = {"type": "forbid_above", "threshold": 0.1, "cost": done["cost"]}
    service.submit({"cost": gated, "label": "gate too narrow"})
    stopped = service.submit(slow_job("stopped by hand"))
    ids["running"] = service.submit(slow_job("sine noise", rows=9000))
    service.submit(slow_job("next in line"))
    service.wait_for(ids["done"], "succeeded")
    service.wait_for(stopped, "running")
    service.cancel(stopped)
    return ids


def main() -> int:
    OUT.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp())
    service = ServiceProcess(folder / "data", workers=1, drain_s=5)
    files = str(folder / "before.csv"), str(folder / "after.csv")
    for name, seed in zip(files, (3, 4), strict=True):
        np.savetxt(name, moons(seed, 2500, seed == 4), delimiter=",")
    service.start()
    try:
        ids = submit_all(service)
        with sync_playwright() as driver:
            path = shutil.which("chromium")
            browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
            page = browser.new_page()
            page.goto(f"{service.url}/#/jobs/{ids['running']}")
            page.set_default_timeout(120_000)
            wait_text(page, "#bar-text", "rows assigned in phase")
            for theme in ("light", "dark"):
                for width, height in SIZES.items():
                    context = browser.new_context(
                        viewport={"width": width, "height": height}, color_scheme=theme
                    )
                    visit(context.new_page(), service.url, files, ids, f"{width}-{theme}")
                    context.close()
            browser.close()
    finally:
        service.stop()
        shutil.rmtree(folder)
    size = sum(file.stat().st_size for file in OUT.glob("*.png"))
    sys.stdout.write(f"{len(list(OUT.glob('*.png')))} pictures, {size / 1024:.0f} KiB\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
