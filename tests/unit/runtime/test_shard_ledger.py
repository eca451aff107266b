"""Leases on pieces of work, with holders that die, hang and return."""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fairway.runtime.shard_ledger import ShardLease, ShardLedger

TERMS = {"items": 100, "size": 10}


def die(lease: ShardLease) -> None:
    """Do what the kernel does for a killed process: close its files, and nothing else."""
    os.close(lease._file)


class Pieces(RuleBasedStateMachine):
    """Any order of leasing, finishing, dying, hanging and restarting: no piece is lost, and none has two live holders."""

    count = 7

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.finished: set[int] = set()
        self.holders: dict[ShardLease, int | None] = {}
        self.hung: set[ShardLease] = set()
        self.stack = ExitStack()
        self.book = self.open()

    def open(self) -> ShardLedger:
        return ShardLedger(os.path.join(self.folder.name, "book"), self.count, TERMS, timeout=100.0)

    @precondition(lambda self: len(self.holders) < 4)
    @rule()
    def come(self) -> None:
        self.holders[ShardLease(self.book._folder, 100.0)] = None

    @precondition(lambda self: any(piece is None for piece in self.holders.values()))
    @rule()
    def take(self) -> None:
        lease = next(lease for lease, piece in self.holders.items() if piece is None)
        taken = self.book.take(lease)
        held = {piece for other, piece in self.holders.items() if piece is not None and other not in self.hung}
        if taken is None:
            assert held | self.finished == set(range(self.count)), "a piece that nobody has was not given out"
        else:
            assert taken not in held
            assert taken not in self.finished
            self.holders[lease] = taken

    @precondition(lambda self: any(piece is not None for piece in self.holders.values()))
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from([lease for lease, piece in self.holders.items() if piece is not None]))
        piece = self.holders[lease]
        assert piece is not None
        self.book.finish(lease, piece)
        self.finished.add(piece)
        self.holders[lease] = None
        self.hung.discard(lease)

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def killed(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from(list(self.holders)))
        die(lease)
        del self.holders[lease]
        self.hung.discard(lease)

    @precondition(lambda self: any(piece is not None for piece in self.holders.values()))
    @rule(data=st.data())
    def hang(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from([lease for lease, piece in self.holders.items() if piece is not None]))
        os.utime(lease._path, (0, 0))
        self.hung.add(lease)

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from(list(self.holders)))
        lease.close()
        del self.holders[lease]
        self.hung.discard(lease)

    @rule()
    def start_again(self) -> None:
        self.book = self.open()

    @invariant()
    def done_is_what_was_finished(self) -> None:
        assert set(self.book.done()) == self.finished
        assert self.book.complete() == (len(self.finished) == self.count)

    def teardown(self) -> None:
        for lease in self.holders:
            die(lease)
        book = self.open()
        with book.lease() as lease:
            while (piece := book.take(lease)) is not None:
                assert piece not in self.finished
                book.finish(lease, piece)
                self.finished.add(piece)
        assert book.complete(), "somebody's piece was lost"
        self.folder.cleanup()


TestPieces = Pieces.TestCase
TestPieces.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_fast_and_slow_workers_finish_together(tmp_path: Path) -> None:
    book = ShardLedger(str(tmp_path / "book"), 100, TERMS, timeout=100.0)
    cost = {"fast": 1.0, "slow": 7.0}
    clock = dict.fromkeys(cost, 0.0)
    with ExitStack() as stack:
        leases = {name: stack.enter_context(book.lease()) for name in cost}
        working = set(cost)
        holding: dict[str, int] = {}
        while working:
            name = min(working, key=lambda one: clock[one])
            if name in holding:
                book.finish(leases[name], holding.pop(name))
            piece = book.take(leases[name])
            if piece is None:
                working.discard(name)
                continue
            holding[name] = piece
            clock[name] += cost[name]
    assert book.complete()
    assert abs(clock["fast"] - clock["slow"]) <= cost["slow"]
    assert max(clock.values()) < 100 * cost["fast"]


def test_a_piece_of_a_stuck_holder_may_be_finished_by_both(tmp_path: Path) -> None:
    book = ShardLedger(str(tmp_path / "book"), 1, TERMS, timeout=100.0)
    with book.lease() as stuck, book.lease() as other:
        assert book.take(stuck) == 0
        assert book.take(other) is None
        os.utime(stuck._path, (0, 0))
        assert book.take(other) == 0
        book.finish(stuck, 0)
        assert book.complete()
        assert book.take(stuck) is None
        book.finish(other, 0)
        assert book.done() == [0]


def test_renewing_keeps_a_piece(tmp_path: Path) -> None:
    book = ShardLedger(str(tmp_path / "book"), 1, TERMS, timeout=100.0)
    with book.lease() as slow, book.lease() as other:
        book.take(slow)
        os.utime(slow._path, (0, 0))
        slow._renewed = 0.0
        slow.renew()
        assert book.take(other) is None


def test_processes_that_disagree_are_told(tmp_path: Path) -> None:
    ShardLedger(str(tmp_path / "book"), 10, TERMS, timeout=1.0)
    with pytest.raises(ValueError, match=r"do not agree.*'size': 20.*an earlier one.*'size': 10"):
        ShardLedger(str(tmp_path / "book"), 5, {**TERMS, "size": 20}, timeout=1.0)


def test_a_forked_child_does_not_end_its_parents_lease(tmp_path: Path) -> None:
    book = ShardLedger(str(tmp_path / "book"), 1, TERMS, timeout=100.0)
    with book.lease() as lease, book.lease() as other:
        book.take(lease)
        child = os.fork()
        if child == 0:
            lease.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert book.take(other) is None


def test_a_start_counts_once(tmp_path: Path) -> None:
    book = ShardLedger(str(tmp_path / "book"), 4, TERMS, timeout=100.0)
    book.begin_with([0, 1], "0.0")
    with book.lease() as lease:
        book.finish(lease, 2)
    book.begin_with([0, 1], "0.0")
    assert book.done() == [0, 1, 2]
    book.begin_with([0], "1.0")
    assert book.done() == [0]
