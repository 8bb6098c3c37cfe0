"""Runs the detectors in a process of their own, so that they never hold the lock of the interpreter that takes batches.

`ChildJudge` is the collector's side. `python -m gradwatch.collector.judging` is the other: it reads questions from its standard
input and writes answers to its standard output, each a length (4 bytes, little-endian) and so many bytes of msgpack. Findings and
states go to the store on the collector's side alone, so whatever becomes of the child, nothing is judged twice.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import IO

import msgspec

from gradwatch.errors import GradwatchError
from gradwatch.schema import Block, Finding
from gradwatch.watcher import Detecting, Verdict
from gradwatch.wire import Columns, pack, unpack

NICE = 5
"""Taking batches goes first where there is one core for both."""
END_SECONDS = 5.0


class Begin(msgspec.Struct, frozen=True, tag="begin"):
    """Take a run up with these states; no answer."""

    run: str
    states: dict[str, bytes]


class Judge(msgspec.Struct, frozen=True, tag="judge"):
    """Judge a run's next points."""

    run: str
    columns: Columns


class Forget(msgspec.Struct, frozen=True, tag="forget"):
    """Let go of a run; no answer."""

    run: str


class Answer(msgspec.Struct, frozen=True):
    """The verdict, or why there is none."""

    findings: list[Finding] = []
    states: dict[str, bytes] = {}
    trouble: str = ""


class JudgingError(GradwatchError):
    """The detectors failed on a block, or their process has ended."""


class ChildJudge:
    """A `Judge` whose detectors run in a child process; for one thread at a time. A child that has ended is followed by another.

    Runs that the child had taken up are to be begun again then: the other one knows nothing of them.
    """

    holds_lock = False

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None

    def begin(self, run: str, states: Mapping[str, bytes]) -> None:
        """Take a run up with these states."""
        self._send(Begin(run, dict(states)))

    def judge(self, run: str, block: Block) -> Verdict:
        """Judge the run's next points; JudgingError where a detector fails on them, or the child has ended."""
        self._send(Judge(run, pack(block)))
        answer = msgspec.msgpack.decode(self._received(), type=Answer)
        if answer.trouble:
            raise JudgingError(answer.trouble)
        return Verdict(answer.findings, answer.states)

    def forget(self, run: str) -> None:
        """Let go of what is known of the run."""
        if self._child is not None:
            self._send(Forget(run))

    def close(self) -> None:
        """End the child; a second call does nothing."""
        child, self._child = self._child, None
        if child is None:
            return
        assert child.stdin is not None
        assert child.stdout is not None
        with contextlib.suppress(OSError):
            child.stdin.close()
        try:
            child.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        child.stdout.close()

    def _send(self, question: Begin | Judge | Forget) -> None:
        if self._child is None:
            # In a session of its own, so that a Ctrl-C at the terminal reaches the collector alone. With -P, since Python would
            # else import a file of the working directory that is called like a module.
            command = [sys.executable, "-P", "-m", __name__]
            self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        try:
            assert self._child.stdin is not None
            write(self._child.stdin, msgspec.msgpack.encode(question))
        except OSError as error:
            self.close()
            raise JudgingError(f"the detectors' process has ended ({error})") from error

    def _received(self) -> bytes:
        assert self._child is not None
        assert self._child.stdout is not None
        answer = read(self._child.stdout)
        if answer is None:
            self.close()
            raise JudgingError("the detectors' process has ended")
        return answer


def write(stream: IO[bytes], body: bytes) -> None:
    """Write a frame."""
    stream.write(len(body).to_bytes(4, "little"))
    stream.write(body)
    stream.flush()


def read(stream: IO[bytes]) -> bytes | None:
    """The next frame; None at the end."""
    head = stream.read(4)
    if len(head) < 4:
        return None
    return stream.read(int.from_bytes(head, "little"))


def answered(judge: Detecting, question: Judge) -> Answer:
    """The verdict on a block, or the trouble with it."""
    try:
        return Answer(*judge.judge(question.run, unpack(question.columns)))
    except Exception as error:  # noqa: BLE001 - the watcher's loop: a detector's failure is told, and ends nothing
        return Answer(trouble=f"a detector failed: {type(error).__name__}: {error}")


def main() -> None:
    """Answer until the collector ends or closes the pipe."""
    os.nice(NICE)
    judge = Detecting()
    questions, answers = sys.stdin.buffer, sys.stdout.buffer
    # What a detector prints must not be taken for an answer.
    sys.stdout = sys.stderr
    while (body := read(questions)) is not None:
        match msgspec.msgpack.decode(body, type=Begin | Judge | Forget):
            case Begin(run, states):
                judge.begin(run, states)
            case Forget(run):
                judge.forget(run)
            case Judge() as question:
                write(answers, msgspec.msgpack.encode(answered(judge, question)))


if __name__ == "__main__":
    main()
