"""What a terminal shows of a run: a bar that says what is done, finished lines that fit, and nobody else's bars."""

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest
from rich.console import Console
from small_project import environment, write_project

from espalier.engine.runtime.compiling import Compiling
from espalier.flows.pipeline import STEPS
from espalier.flows.terminal import BarProgress, PlainProgress, Terminal
from espalier.tasks.progress import working

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def bar(width=100):
    """A bar, and what its terminal has shown so far."""
    stream = io.StringIO()
    console = Console(file=stream, width=width, force_terminal=True)
    return BarProgress("train", console), lambda: CONTROL.sub("", stream.getvalue())


def in_terminal(*arguments, cwd, columns):
    """A Python process with a terminal of so many columns; its exit code and what it wrote, without colours."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    env = environment(TERM="xterm-256color")
    env.pop("COLUMNS", None)
    process = subprocess.Popen([sys.executable, *arguments], cwd=cwd, env=env, stdin=its, stdout=its, stderr=its)
    os.close(its)
    written = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the other end was closed
            piece = b""
        if not piece:
            break
        written += piece
    os.close(ours)
    return process.wait(), CONTROL.sub("", written.decode())


def lines_of(text):
    """The lines that stay: of those that were written over, the last."""
    return [line.rstrip().rsplit("\r", 1)[-1] for line in text.replace("\r\n", "\n").split("\n")]


def test_a_run_in_a_terminal(tmp_path):
    project = write_project(tmp_path / "project", with_dvc=True)
    code, text = in_terminal("-m", "espalier.flows.cli", "run", "--direct", cwd=project, columns=100)
    assert code == 0, text
    finished = [line for line in lines_of(text) if line.startswith("✓")]
    assert [line.split()[1] for line in finished] == list(STEPS)
    assert all(line.endswith(" s]") and len(line) <= 100 for line in finished), "each is one line of the terminal"
    assert "0/?" not in text
    for bar_of_dvc in ("Committing", "Adding", "Checking", "Building", "%|", "file/s"):
        assert bar_of_dvc not in text
    assert (project / "dvc.lock").is_file(), "DVC had something to show a bar for"


def test_a_bar_says_that_kernels_are_compiled_and_then_what_it_said_before():
    progress, shown = bar()
    state = Compiling()
    progress.begin(None, "")
    progress.begin(3, "iteration")
    progress.step(1, "objective 5")
    for state.kernels, state.kernel in [(0, "outer"), (2, "inner"), (3, "")]:
        progress.compiling(state)
        progress.bar.refresh()
    state.seconds = 4.25
    progress.end("done")
    text = shown()
    assert text.index("compiling kernels for this machine, once: 2 done") < text.rindex("objective 5")
    *_, compiled, end = (line for line in lines_of(text) if line)
    assert compiled.split() == "train 3 kernels compiled for this machine in 4.2 s".split()
    assert end.startswith("✓ train     done [")


def test_the_time_of_a_step_begins_before_its_size_is_known(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr("espalier.flows.terminal.time.monotonic", lambda: clock[0])
    stream = io.StringIO()
    progress = PlainProgress("train", stream)
    with working(progress):
        clock[0] += 60  # of compiling
        progress.begin(3, "iteration")
        clock[0] += 2
        progress.end("done")
    assert stream.getvalue().splitlines() == ["train     …", "train     done [62.0 s]"]


def test_plain_lines_say_that_kernels_are_compiled_now_and_then(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr("espalier.flows.terminal.time.monotonic", lambda: clock[0])
    stream, state = io.StringIO(), Compiling()
    progress = PlainProgress("train", stream)
    progress.begin(None, "")
    for state.kernels in range(4):
        progress.compiling(state)
        clock[0] += 4
    state.seconds = 16
    progress.end("done")
    assert stream.getvalue().splitlines() == [
        "train     …",
        "train     compiling kernels for this machine, once …",
        "train     compiling kernels for this machine, once: 3 done",
        "train     3 kernels compiled for this machine in 16.0 s",
        "train     done [16.0 s]",
    ]


@pytest.mark.parametrize("width", [40, 80, 100])
def test_a_long_line_goes_on_behind_the_name(width):
    progress, shown = bar(width)
    progress.begin(None, "")
    progress.end("many words " * 12)
    lines = [line for line in lines_of(shown()) if "words" in line]
    assert len(lines) > 1 and all(len(line) <= width for line in lines)
    assert lines[0].startswith("✓ train     many") and all(re.match(" {12}[mw]", line) for line in lines[1:])


@pytest.mark.parametrize("total", [None, 1234])
def test_how_much_is_done(total):
    progress, shown = bar()
    progress.begin(total, "token")
    progress.step(1000, "reading [a/b]")
    progress.bar.refresh()
    progress.end()
    assert ("1,000/1,234 " in shown()) == (total is not None) and " 1,000" in shown() and "?" not in shown()
    assert "reading [a/b]" in shown()


def test_a_bar_of_a_failed_stage_is_taken_away():
    terminal = Terminal()
    progress, _ = bar()
    terminal.current = progress
    progress.begin(None, "")
    terminal.close()
    assert not progress.bar.live.is_started
