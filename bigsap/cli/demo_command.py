"""The demo: exchange the colours of two photographs, matched pixel by pixel by a service.

Every pixel is a point (x, y, r, g, b); the assignment with the least total squared distance gives
each pixel of one picture a pixel of the other. With 20,000 pixels the cost matrix would take 3.2
GB; here its rows are computed when they are needed.

A BigSAP service is started on a free port of this machine's loopback, gets the points and the job,
and is stopped at the end. Its result is verified here, against costs computed again.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import bigsap
from bigsap.cli.common import on_terminal
from bigsap.cli.photographs import features, grid, photograph, recoloured, reduced, save_side_by_side
from bigsap.client.jobs import Client
from bigsap.client.local_service import LocalService
from bigsap.client.shown import Shown
from bigsap.display.progress_bar import BarState, clock, counts, title
from bigsap.display.text import align, bytes_text, result_lines, shown
from bigsap.errors import InputError
from bigsap.memory import peak_bytes

if TYPE_CHECKING:
    from bigsap.client import Job
    from bigsap.result import Result

PICTURE = "recoloured.png"
RESULT = "result.npz"


def run(
    *,
    pixels: int = 20_000,
    out: Path = Path("demo-out"),
    position: float = 1.0,
    threads: int | None = None,
    cache: str = "512MiB",
) -> Result:
    """Match china.jpg with flower.jpg, print the numbers, write picture and result.

    pixels: least number of pixels in each picture. out: folder, created if missing. position:
    weight of the place relative to the colour. Memory: the cache and some vectors, in the service's
    worker. Raises ImportError if the extra ``demo`` is missing, OptionError for bad values,
    ServiceError if the service refuses them or fails.
    """
    started = time.perf_counter()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(f"{out}: is not a folder") from error
    source, palette = photograph("china.jpg"), photograph("flower.jpg")
    width, height = grid(pixels, source.width / source.height)
    image, colours = reduced(source, width, height), reduced(palette, width, height)
    points = features(image, position), features(colours, position)
    n = width * height
    print(f"china.jpg and flower.jpg, {width} x {height} = {n:,} pixels each")
    print(f"costs computed on the fly (the matrix would take {bytes_text(8.0 * n * n)})")
    print("on a new machine the first run compiles kernels, which takes about a minute", flush=True)

    with (
        tempfile.TemporaryDirectory(prefix="bigsap-demo-") as folder,
        LocalService(Path(folder) / "data", workers=1) as service,
        Client(service.url) as client,
    ):
        print(f"service started at {service.url}", flush=True)
        x, y = (client.upload(each) for each in points)
        size = bytes_text(points[0].nbytes)
        print(f"uploaded the point sets: {shown(x)} and {shown(y)}, {size} each")
        job = client.submit(
            {
                "shape": [n, n],
                "cost": {"type": "points", "metric": "sqeuclidean", "x": {"array": x}, "y": {"array": y}},
                "options": {"cache": cache, "threads": threads},
                "label": "china in the colours of flower",
            }
        )
        print(f"submitted {shown(job.id)}", flush=True)
        follow(job)
        result = job.result()
        resident = peak_bytes() + service.peak_bytes()
    print("service stopped")
    certificate = result.verify(bigsap.points(*points))
    print(f"verified here: {certificate.pairs:,} pairs looked at again", flush=True)
    lines = [pair for pair in result_lines(result) if pair[0] != "peak memory"]
    lines.append(("seconds in all", f"{time.perf_counter() - started:.1f}"))
    lines.append(("peak resident", f"{bytes_text(resident)}, all processes together"))
    print(align(lines))
    if result.fun is not None:
        result.save(out / RESULT)
        swapped = recoloured(image, colours, result.col4row)
        save_side_by_side(out / PICTURE, [image, colours, swapped])
        print(f"wrote {shown(out / PICTURE)} (china, flower, china in the flower's colours)")
        print(f"wrote {shown(out / RESULT)}", flush=True)
    return result


def follow(job: Job) -> None:
    """Wait for the job: with a bar on a terminal, else with lines for a log."""
    if on_terminal():
        job.wait(progress=True)
        return
    lines = PhaseLines()

    def show(now: Job) -> None:
        if now.progress:
            lines(Shown(now.record))

    job.wait(callback=show)


class PhaseLines:
    """Progress lines for a log file: one at the start of each phase, one every 10 s.

    The last rows of a phase may take most of its time. So the number of assigned rows is printed
    only if it has grown since the line before, the other counts always.
    """

    def __init__(self, interval: float = 10.0) -> None:
        self._phase = -1
        self._printed = 0.0
        self._interval = interval
        self._assigned = 0

    def __call__(self, state: BarState) -> None:
        """Print a line if one is due."""
        begins = state.phase != self._phase
        if not begins and state.seconds - self._printed < self._interval:
            return
        self._phase, self._printed = state.phase, state.seconds
        # At its start a phase still has the matching of the previous one.
        if begins:
            self._assigned = 0
        text = counts(state)
        if not begins and state.assigned > self._assigned:
            self._assigned = state.assigned
            text = f"{state.assigned:,}/{state.n_rows:,} assigned, {text}"
        print(f"  {clock(state.seconds)}  {title(state)}: {text}", flush=True)
