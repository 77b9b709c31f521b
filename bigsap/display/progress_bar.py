"""A progress bar on one terminal line: tqdm's if installed, otherwise our own.

Errors while drawing never interrupt a solve: if stderr is missing or closed, the bar is off.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol, TextIO

#: Seconds between two drawings.
INTERVAL = 0.1


class BarState(Protocol):
    """The attributes of a running solve that a bar reads (``bigsap.progress.Progress`` has them)."""

    @property
    def phase(self) -> int: ...
    @property
    def epsilon(self) -> float: ...
    @property
    def assigned(self) -> int: ...
    @property
    def n_rows(self) -> int: ...
    @property
    def rows_scanned(self) -> int: ...
    @property
    def rows_evaluated(self) -> int: ...
    @property
    def seconds(self) -> float: ...
    @property
    def stage(self) -> str: ...
    @property
    def ranked(self) -> int: ...
    @property
    def to_rank(self) -> int: ...


def clock(seconds: float) -> str:
    """Return seconds as ``m:ss`` or ``h:mm:ss``."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def title(state: BarState) -> str:
    """Return a short name of the phase; phase 0 is the sweep for the first prices."""
    if state.to_rank:
        return "ranking"
    if state.phase == 0:
        return "first prices"
    return f"phase {state.phase}, epsilon {state.epsilon:.2g}"


def counts(state: BarState) -> str:
    """Return the two costs of a search as text: rows scanned and rows evaluated so far."""
    return f"{state.rows_scanned:,} scans, {state.rows_evaluated:,} evaluations"


class Assigned:
    """The number of assigned rows as a bar shows it: it never falls.

    Every phase assigns all rows anew, and only the last phase's assignment stays. So the number is
    shown from the last phase on; the progress of a phase with epsilon > 0 is shown as a share only.
    """

    def __init__(self) -> None:
        self._phase, self._most, self._last = -1, 0, 0

    def see(self, state: BarState) -> None:
        """Record the counts of a state."""
        if state.phase != self._phase:
            self._phase, self._most = state.phase, 0
        self._most = max(self._most, state.assigned)
        if state.stage == "done" or (state.phase >= 1 and state.epsilon == 0):
            self._last = max(self._last, state.assigned)

    @property
    def rows(self) -> int:
        """The most rows that the phase has assigned so far."""
        return max(self._most, self._last)

    def of(self, state: BarState) -> tuple[int, int, str]:
        """Return what the bar shows: how much is done, of how much, and the same as text.

        Rows, without text before the last phase; assignments once these are ranked.
        """
        done, of, last = self.rows, state.n_rows, self._last
        if state.to_rank:
            done = last = state.ranked
            of = state.to_rank
        return min(done, of), of, f"{last:,}/{of:,}" if last else ""


class _Shield:
    """A stream that hides its errors from the bar.

    tqdm would keep its lock for ever after such an error, and all other bars would wait for it.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.broken = stream is None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        self._attempt(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        self._attempt(getattr(self._stream, "flush", lambda: None))

    def _attempt(self, action: Callable[[], object]) -> None:
        if not self.broken:
            try:
                action()
            except (OSError, ValueError, AttributeError, TypeError):
                self.broken = True  # a closed terminal, or a closed or unusual stream


class _Nothing:
    """The state before the first update."""

    phase = assigned = n_rows = rows_scanned = rows_evaluated = ranked = to_rank = 0
    epsilon = seconds = 0.0
    stage = "start"


class Bar:
    """One line that shows the progress of a solve.

    It shows the share of the current phase, and counts that still change while the last rows of a
    phase take long. See ``Assigned`` for the number of rows. After a solve it shows how many assignments
    are ranked.

    stream: where to draw, by default stderr, if there is one. Draws at most every ``INTERVAL``
    seconds and once more on ``close``, which ends the line and may be called twice. Threads may
    call it at the same time.
    """

    def __init__(self, stream: TextIO | None = None, *, plain: bool | None = None) -> None:
        self._stream = _Shield(sys.stderr if stream is None else stream)
        if plain is None:
            plain = importlib.util.find_spec("tqdm") is None
        self._tqdm: Any = None
        self._state: BarState | None = None
        self._assigned = Assigned()
        self._drawn = -INTERVAL
        self._width = 0
        self._compiling: float | None = None
        self._lock = threading.Lock()
        self._open = not self._stream.broken
        if not plain:
            self._unless_broken(self._make_tqdm)

    def _make_tqdm(self) -> None:
        from tqdm.auto import tqdm

        self._tqdm = tqdm(
            total=0, file=self._stream, dynamic_ncols=True, bar_format="{desc} |{bar}| [{elapsed}{postfix}]"
        )

    def _unless_broken(self, draw: Callable[[], None]) -> None:
        """Draw; switch the bar off permanently if that fails."""
        with self._lock:
            if not self._open:
                return
            draw()
            if self._stream.broken:
                self._open = False
                if self._tqdm is not None:
                    self._tqdm.disable = True

    def update(self, state: BarState) -> None:
        """Show ``state`` if ``INTERVAL`` has passed. The caller may change the state in place later."""
        self._state = state
        self._assigned.see(state)
        now = time.monotonic()
        if self._open and now - self._drawn >= INTERVAL:
            self._drawn = now
            self._unless_broken(lambda: self._draw(state))

    __call__ = update  # a Bar is a callback

    def compiling(self, seconds: float | None) -> None:
        """Show that kernels have been compiling for ``seconds``; None: compilation has ended."""
        self._compiling = seconds
        self._unless_broken(lambda: self._draw(self._state or _Nothing()))

    def say(self, text: str) -> None:
        """Write a line of text above the bar."""
        self._unless_broken(lambda: self._say(text))

    def close(self) -> None:
        """Draw the last state and end the line."""
        self._compiling = None
        self._unless_broken(self._end)
        self._open = False

    def _end(self) -> None:
        if self._state is not None:
            self._assigned.see(self._state)
            self._draw(self._state)
        if self._tqdm is not None:
            self._tqdm.close()
        elif self._width:
            self._stream.write("\n")
            self._stream.flush()

    def _say(self, text: str) -> None:
        if self._tqdm is not None:
            self._tqdm.write(text, file=self._stream)
            return
        self._stream.write("\r" + text.ljust(self._width) + "\n")
        self._stream.flush()
        self._width = 0

    def _draw(self, state: BarState) -> None:
        heading = title(state)
        if self._compiling is not None:
            heading = f"compiling, {clock(self._compiling)}"
        if self._tqdm is not None:
            done, of, text = self._assigned.of(state)
            if self._tqdm.total != of:
                # In a notebook only a reset tells the widget; the clock goes on.
                start = getattr(self._tqdm, "start_t", None)  # none where tqdm is off
                self._tqdm.reset(of)
                if start is not None:
                    self._tqdm.start_t = start
            self._tqdm.n = done
            self._tqdm.set_description_str(heading, refresh=False)
            self._tqdm.set_postfix_str(", ".join(filter(None, (text, counts(state)))), refresh=False)
            self._tqdm.refresh()
            return
        text = line(state, _columns(self._stream) - 1, heading, self._assigned)
        # Overwrite with blanks: not every terminal supports escape sequences.
        self._stream.write("\r" + text.ljust(self._width))
        self._stream.flush()
        self._width = len(text)


def _columns(stream: Any) -> int:
    """Return the width of the terminal behind ``stream`` (stdout may be redirected)."""
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError, AttributeError):  # not a terminal
        columns = 0
    return columns or shutil.get_terminal_size().columns


def line(state: BarState, width: int, heading: str | None = None, assigned: Assigned | None = None) -> str:
    """Return the whole bar as text of at most ``width`` characters.

    heading: by default the phase. assigned: the record of earlier states, by default empty.
    """
    if assigned is None:
        assigned = Assigned()
        assigned.see(state)
    done, of, text = assigned.of(state)
    cells = 20
    full = done * cells // of if of else cells
    bar = "#" * full + "." * (cells - full)
    parts = heading or title(state), f"[{bar}]", text, clock(state.seconds)
    text = " ".join(part for part in (*parts, counts(state)) if part)
    return text[: max(width, 0)]
