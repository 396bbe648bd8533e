"""Progress: how far a sweep is, for whoever watches the terminal."""

import sys
import threading

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

DELAY = 1.0  # Seconds before the bar appears; what is over by then needs none.
# Seconds of which the speed is taken: some trials alone take longer than rich's 30.
SPEED_PERIOD = 600.0


class Bar:
    """A bar on the standard error, with the time left and the failures so far.

    Shows nothing if that is not a terminal, or if all is over before it is due.

    Args:
      title: what is running.
      visible: whether to show anything at all.
      delay: seconds before it appears, `DELAY` if None.
    """

    def __init__(
        self, title: str, *, visible: bool, delay: float | None = None
    ) -> None:
        console = Console(stderr=True)
        self._failures = 0
        self._total = 0
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
            transient=True,
            speed_estimate_period=SPEED_PERIOD,
        )
        self._task = self._progress.add_task(title, total=0, note="")
        self._lock = threading.Lock()
        self._over = not (visible and console.is_terminal and sys.stderr.isatty())
        self._timer = threading.Timer(DELAY if delay is None else delay, self._show)
        self._timer.daemon = True

    def _show(self) -> None:
        with self._lock:
            if not self._over:
                self._progress.start()

    def advance(self, trials: int) -> None:
        """Count trials that were run."""
        self._progress.advance(self._task, trials)

    def expect(self, trials: int) -> None:
        """Add trials to those that are to be run, or take some out if negative."""
        self._total += trials
        self._progress.update(self._task, total=self._total)

    def fail(self) -> None:
        """Count a cell that failed."""
        self._failures += 1
        self._progress.update(self._task, note=f"{self._failures} failed")

    def __enter__(self) -> "Bar":
        if not self._over:
            self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._over = True
            self._timer.cancel()
            if self._progress.live.is_started:  # Else it would end a line it lacks.
                self._progress.stop()
