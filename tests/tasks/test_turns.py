"""Runs in turn: one computes at a time, each waits for all the others, and a failure ends them."""

import threading
import time

import pytest

from tasks.experiments.turns import in_turn


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


def test_the_time_of_the_others_is_told():
    def work(nap):
        def run(turn):
            begin = time.perf_counter()
            for _ in range(3):
                time.sleep(nap)
                turn.pass_on()
            return time.perf_counter() - begin - turn.waited, turn.waited

        return run

    found = in_turn({"short": work(0.01), "long": work(0.1)})
    own, waited = found["short"]
    assert own < 0.1 < 0.3 <= waited
    assert found["long"][0] >= 0.3


def test_a_failure_is_raised_and_ends_the_others():
    closed, threads = [], threading.active_count()

    def fails(turn):
        turn.pass_on()
        raise ValueError("no such weight")

    def waits(turn):
        try:
            while True:
                turn.pass_on()
        finally:
            closed.append(True)

    with pytest.raises(ValueError, match="no such weight"):
        in_turn({"first": waits, "bad": fails, "last": waits})
    assert closed == [True, True]
    assert threading.active_count() == threads


def test_one_that_had_no_turn_yet_is_never_started():
    def fails(turn):
        raise ValueError("at once")

    started = []
    with pytest.raises(ValueError, match="at once"):
        in_turn({"bad": fails, "other": started.append})
    assert started == []
