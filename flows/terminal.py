"""Progress in a terminal: a bar for each stage; plain lines where there is no terminal."""

import sys
import time

from tasks.progress import Progress

PLAIN_SECONDS = 10.0  # between two lines of one stage when nobody watches a bar


class PlainProgress(Progress):
    """One line when a stage begins and ends, and now and then between."""

    def __init__(self, name: str, stream=None):
        self.name, self.stream = name, stream or sys.stderr
        self.done, self.total, self.unit = 0, None, ""

    def begin(self, total, unit):
        self.total, self.unit = total, unit
        self.started = self.last = time.monotonic()
        self._write("…")

    def step(self, n=1, note=""):
        self.done += n
        if time.monotonic() - self.last >= PLAIN_SECONDS:
            self.last = time.monotonic()
            of = f" of {self.total}" if self.total else ""
            self._write(f"{self.unit} {self.done}{of}" + (f", {note}" if note else ""))

    def say(self, text):
        self._write(text)

    def end(self, note=""):
        self._write(f"{note} [{time.monotonic() - self.started:.1f} s]")

    def _write(self, text: str) -> None:
        print(f"{self.name:<9} {text}", file=self.stream, flush=True)


class BarProgress(Progress):
    """A rich bar that stays as a finished line."""

    def __init__(self, name: str, console):
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        self.name = name
        self.bar = Bar(
            TextColumn("[bold]{task.fields[stage]:<9}"), BarColumn(bar_width=24), MofNCompleteColumn(),
            TimeElapsedColumn(), TextColumn("{task.description}"), console=console, transient=True,
        )  # fmt: skip
        self.console = console

    def begin(self, total, unit):
        self.started = time.monotonic()
        self.bar.start()
        self.task = self.bar.add_task("", total=total, stage=self.name)

    def step(self, n=1, note=""):
        from rich.markup import escape

        self.bar.update(self.task, advance=n, description=escape(note))

    def say(self, text):
        self.console.print(f"{self.name:<9} {text}", markup=False, highlight=False)

    def end(self, note=""):
        self.bar.stop()
        seconds = time.monotonic() - self.started
        self.console.print(f"[green]✓[/] [bold]{self.name:<9}[/] ", end="", highlight=False)
        self.console.print(note, f"[{seconds:.1f} s]", markup=False, highlight=False)


class Terminal:
    """Makes the progress of each stage and takes a bar away when a stage fails."""

    def __init__(self, quiet: bool = False, stream=None):
        self.quiet, self.stream = quiet, stream or sys.stderr
        self.current: Progress | None = None
        self.console = None
        if not quiet and self.stream.isatty():
            from rich.console import Console

            self.console = Console(file=self.stream)

    def progress_of(self, name: str) -> Progress:
        if self.quiet:
            self.current = Progress()
        else:
            self.current = BarProgress(name, self.console) if self.console else PlainProgress(name, self.stream)
        return self.current

    def close(self) -> None:
        bar = getattr(self.current, "bar", None)
        if bar is not None:
            bar.stop()
