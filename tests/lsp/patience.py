"""Limits of time for tests: short where a processor is to be had, longer where there is a part of one."""

import math
import time

#: Seconds of computing by which the share of a processor is measured.
_SAMPLE = 0.1


def share() -> float:
    """The part of a processor that this process gets now, from 0 to 1."""
    started, before = time.monotonic(), time.process_time()
    while time.process_time() - before < _SAMPLE:
        pass
    return min(1.0, (time.process_time() - before) / (time.monotonic() - started))


def scaled(seconds: float, part: float) -> float:
    """A limit that is enough with half a processor, for the part of one that there is, in steps of 1.5 s."""
    return max(seconds, 1.5 * math.ceil(seconds / 2 / part / 1.5))


def of_limit(pattern: str, told: float, limit: float) -> str:
    """What is said of a limit of `told` seconds, and of the two thirds of it that a program has, as said of `limit`."""
    for before, now in ((told, limit), (2 * told / 3, 2 * limit / 3)):
        pattern = pattern.replace(f" {before:.3g} s ", f" {now:.3g} s ")
    return pattern
