"""Progress in a terminal: a bar for each stage; plain lines where there is no terminal."""

import sys
import time

from espalier.engine.runtime.compiling import TEXT, Compiling
from espalier.tasks.progress import Progress

PLAIN_SECONDS = 10.0  # between two lines of one stage when nobody watches a bar


class Timed(Progress):
    """A listener with a clock: it runs from the first `begin`, and what kernels took of it is told before the end."""

    def __init__(self, name: str):
        self.name, self.started = name, None
        self.compiled = Compiling()

    def starts(self) -> bool:
        """Whether this is the first `begin`; the clock runs from now on then."""
        first = self.started is None
        if first:
            self.started = time.monotonic()
        return first

    def compiling(self, state: Compiling) -> None:
        self.compiled = state

    @property
    def seconds(self) -> str:
        return f"[{time.monotonic() - self.started:.1f} s]"

    def say_what_was_compiled(self) -> None:
        count = self.compiled.kernels
        if count:
            kernels = "kernel" if count == 1 else "kernels"
            self.say(f"{count} {kernels} compiled for this machine in {self.compiled.seconds:.1f} s")


class PlainProgress(Timed):
    """One line when a stage begins and ends, and now and then between."""

    def __init__(self, name: str, stream=None):
        super().__init__(name)
        self.stream = stream or sys.stderr
        self.done, self.total, self.unit = 0, None, ""

    def begin(self, total, unit):
        self.total, self.unit = total, unit
        if self.starts():
            self.last = self.started
            self._write("…")

    def step(self, n=1, note=""):
        self.done += n
        of = f" of {self.total}" if self.total else ""
        self._now_and_then(f"{self.unit} {self.done}{of}" + (f", {note}" if note else ""))

    def compiling(self, state):
        if state is not self.compiled:
            self._write(f"{TEXT} …")
        else:
            self._now_and_then(str(state))
        super().compiling(state)

    def say(self, text):
        self._write(text)

    def end(self, note=""):
        self.say_what_was_compiled()
        self._write(f"{note} {self.seconds}")

    def _now_and_then(self, text: str) -> None:
        if time.monotonic() - self.last >= PLAIN_SECONDS:
            self.last = time.monotonic()
            self._write(text)

    def _write(self, text: str) -> None:
        print(f"{self.name:<9} {text}", file=self.stream, flush=True)


class BarProgress(Timed):
    """A rich bar that stays as a finished line."""

    def __init__(self, name: str, console):
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar
        from rich.table import Column

        super().__init__(name)
        self.console, self.note = console, ""
        text = TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"))
        self.bar = Bar(
            TextColumn("[bold]{task.fields[stage]:<9}"), BarColumn(bar_width=24), _count_column(),
            TimeElapsedColumn(), text, console=console, transient=True, expand=True,
        )  # fmt: skip

    def begin(self, total, unit):
        if self.starts():
            self.bar.start()
            self.task = self.bar.add_task("", total=total, stage=self.name)
        else:
            self.bar.update(self.task, total=total)

    def step(self, n=1, note=""):
        self.note = note
        self._describe(note, n)

    def compiling(self, state):
        super().compiling(state)
        if self.started is not None:
            self._describe(str(state) if state.kernel else self.note)

    def _describe(self, text: str, n: int = 0) -> None:
        from rich.markup import escape

        self.bar.update(self.task, advance=n, description=escape(text))

    def say(self, text):
        self._line("  ", text)

    def end(self, note=""):
        self.bar.stop()
        self.say_what_was_compiled()
        self._line("[green]✓[/] ", f"{note} {self.seconds}")

    def _line(self, mark: str, text: str) -> None:
        """A line that stays; what does not fit goes on below, behind the name of the stage."""
        from rich.table import Table
        from rich.text import Text

        line = Table.grid()
        line.add_column(no_wrap=True)
        line.add_column(ratio=1, overflow="fold")
        line.add_row(Text.from_markup(f"{mark}[bold]{self.name:<9}[/] "), Text(text))
        self.console.print(line, highlight=False)


def _count_column():
    """How much is done, of how much where that is known."""
    from rich.progress import ProgressColumn
    from rich.text import Text

    class Count(ProgressColumn):
        def render(self, task):
            done = f"{int(task.completed):,}"
            if task.total is not None:
                return Text(f"{done}/{int(task.total):,}", style="progress.download")
            return Text(done if task.completed else "", style="progress.download")

    return Count()


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
