"""Runs in turn: one computes at a time, each waits for all the others, and a failure ends them."""

import threading
import time

import pytest

from espalier.tasks.experiments.turns import in_turn


def test_each_has_a_turn_before_any_has_another_and_those_that_end_are_left_out():
    seen = []

    def work(name, times):
        def run(turn):
            for i in range(times):
                seen.append(f"{name}{i}")
                turn.pass_on()
            return name.upper()

        return run

    found = in_turn({"a": work("a", 3), "b": work("b", 1), "c": work("c", 2)})
    assert found == {"a": "A", "b": "B", "c": "C"}
    assert seen == ["a0", "b0", "c0", "a1", "c1", "a2"]


def test_the_time_of_the_others_is_told(monkeypatch):
    """By a clock that only work moves on."""
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def work(seconds):
        def run(turn):
            for _ in range(3):
                now[0] += seconds
                turn.pass_on()
            return turn.waited

        return run

    found = in_turn({"short": work(1.0), "long": work(10.0)})
    assert found == {"short": 30.0, "long": 2.0}  # the short one has ended when the long one comes for its last turn


def test_a_failure_is_raised_and_ends_the_others():
    began, closed = [], []

    def fails(turn):
        began.append(threading.current_thread())
        turn.pass_on()
        raise ValueError("no such weight")

    def waits(turn):
        began.append(threading.current_thread())
        try:
            while True:
                turn.pass_on()
        finally:
            closed.append(True)

    with pytest.raises(ValueError, match="no such weight"):
        in_turn({"first": waits, "bad": fails, "last": waits})
    assert closed == [True, True]
    assert len(began) == 3
    assert not any(thread.is_alive() for thread in began)


def test_one_that_had_no_turn_yet_is_never_started():
    def fails(turn):
        raise ValueError("at once")

    started = []
    with pytest.raises(ValueError, match="at once"):
        in_turn({"bad": fails, "other": started.append})
    assert started == []
