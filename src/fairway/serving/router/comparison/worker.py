"""The process that compares responses: `python -m fairway.serving.router.comparison.worker`, started by a router.

It reads pairs of responses from its input and writes the result for each to its output, until its input ends, which is when the
router ends. It runs at a lower priority than the router and the replicas.
"""

from __future__ import annotations

import os
import sys
from typing import BinaryIO

from fairway.serving.router.comparison import frame
from fairway.serving.router.comparison.output_difference import OutputDifference, compare
from fairway.serving.router.comparison.response_output import IncomparableError, NoOutputError, outputs_of

_NICE = 10


def found_of(heads: tuple[bytes, bytes], bodies: tuple[bytes, bytes], tolerance: float) -> tuple[int, float]:
    """Return the result for a pair: flag bits, and the largest difference; no bit if it cannot be compared."""
    try:
        original = outputs_of(heads[0].split(b"\r\n"), bodies[0])
    except IncomparableError:
        return 0, 0.0
    try:
        copy = outputs_of(heads[1].split(b"\r\n"), bodies[1])
    except NoOutputError:
        # The client's response has outputs, and the response to the copy has none.
        return frame.COMPARED | frame.DIFFERS | frame.RELAID, 0.0
    except IncomparableError:
        return 0, 0.0
    return _bits(compare(original, copy, tolerance))


def _bits(found: OutputDifference) -> tuple[int, float]:
    bits = frame.COMPARED
    for bit, is_so in (
        (frame.DIFFERS, found.differs),
        (frame.RELAID, found.relaid),
        (frame.CLASSIFIED, found.classified),
        (frame.RECLASSIFIED, found.reclassified),
        (frame.NON_FINITE, found.non_finite),
        (frame.RESTORED, found.restored and not found.non_finite),
    ):
        bits |= bit * is_so
    return bits, min(found.largest, 1e12)


def serve(questions: BinaryIO, answers: BinaryIO) -> None:
    """Compare pairs until the input ends."""
    while len(start := questions.read(frame.PAIR.size)) == frame.PAIR.size:
        number, tolerance, *sizes = frame.PAIR.unpack(start)
        head, body, other_head, other_body = (questions.read(size) for size in sizes)
        try:
            bits, largest = found_of((head, other_head), (body, other_body), tolerance)
        except Exception as error:  # noqa: BLE001  # an answer of any server must not end the comparison of others
            sys.stderr.write(f"two answers could not be compared: {error!r}\n")
            bits, largest = 0, 0.0
        answers.write(frame.FOUND.pack(number, bits, largest))
        answers.flush()


if __name__ == "__main__":
    os.nice(_NICE)
    serve(sys.stdin.buffer, sys.stdout.buffer)
