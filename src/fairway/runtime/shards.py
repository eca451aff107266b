"""Data shared out as it goes: leased ranges of indices, so that fast and slow workers finish together.

    for shard in fairway.shards(len(dataset), size=1000, epoch=epoch):
        for i in shard:
            train(dataset[i])

Asking for the next shard says that the one before is done. A worker that dies, or that makes no progress
for `timeout` seconds, loses its shard to another one, from its beginning. So nothing is skipped, and only
the shard in the hands of a worker that failed is seen twice. What is done stays done when the job is
started again; to go back to what a checkpoint saw, keep `done()` in the checkpoint and give it back:

    data = fairway.shards(n, size=1000, done=start.meta["shards"] if start else [])
    ...
    with fairway.checkpoint.save(step, shards=data.done()) as folder: ...

All of it lies in files in the run's shared folder under a file lock: no server, nothing to lose. Outside
of a job there is one worker and nothing is written.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterable, Iterator
from typing import Any

from fairway.runtime import context, ledger, stop

_POLL = 0.05


class Shard:
    """A range of indices, `start` to `stop`. Going through it keeps the lease; so does `renew()`."""

    def __init__(self, items: range, lease: ledger.Lease | None) -> None:
        self.start = items.start
        self.stop = items.stop
        self._lease = lease

    def __len__(self) -> int:
        """How many items there are."""
        return self.stop - self.start

    def __iter__(self) -> Iterator[int]:
        """The indices. Each one asked for is progress."""
        for item in range(self.start, self.stop):
            self.renew()
            yield item

    def renew(self) -> None:
        """Say that work on this shard goes on, where the indices are not gone through one by one."""
        if self._lease:
            self._lease.renew()

    def __repr__(self) -> str:
        """`Shard(1000, 2000)`."""
        return f"Shard({self.start}, {self.stop})"


class Shards:
    """The shards of one pass over the data. Several may iterate, in any number of processes; each shard goes to one."""

    def __init__(self, items: int, size: int, order: list[int] | range, book: ledger.Ledger | None) -> None:
        self._items = items
        self._size = size
        self._order = order
        self._book = book
        self._alone: set[int] = set()

    def __iter__(self) -> Iterator[Shard]:
        """Lease one shard after another until all are done, also those that others had begun and lost."""
        if self._book is None:
            return self._iterate_alone()
        return self._iterate_leased(self._book)

    def __len__(self) -> int:
        """How many shards there are in all."""
        return len(self._order)

    def done(self) -> list[list[int]]:
        """The finished index ranges, merged: `[[0, 3000], [5000, 6000]]`. JSON, for a checkpoint."""
        numbers = self._alone if self._book is None else self._book.done()
        merged: list[list[int]] = []
        for items in (self._range(number) for number in sorted(self._order[place] for place in numbers)):
            if merged and merged[-1][1] == items.start:
                merged[-1][1] = items.stop
            else:
                merged.append([items.start, items.stop])
        return merged

    def _iterate_alone(self) -> Iterator[Shard]:
        for place in range(len(self._order)):
            if place not in self._alone:
                yield Shard(self._range(self._order[place]), None)
                self._alone.add(place)

    def _iterate_leased(self, book: ledger.Ledger) -> Iterator[Shard]:
        with book.lease() as lease:
            while True:
                taken = book.take(lease)
                if taken is None:
                    # Others still hold shards that may come free, unless we are told to end.
                    if book.complete() or stop.requested():
                        return
                    time.sleep(_POLL)
                    continue
                yield Shard(self._range(self._order[taken]), lease)
                book.finish(lease, taken)

    def _range(self, number: int) -> range:
        return range(number * self._size, min((number + 1) * self._size, self._items))

    def begin_with(self, done: Iterable[Any]) -> None:
        """Count these ranges as finished and everything else as not; see `done` of `shards`."""
        covered = [(int(start), int(end)) for start, end in done]
        places = [place for place, number in enumerate(self._order) if _inside(self._range(number), covered)]
        if self._book is None:
            self._alone = set(places)
        else:
            self._book.begin_with(places, context.attempt_token())


def shards(
    items: int, size: int, *, epoch: int = 0, seed: int | None = None, done: Iterable[Any] | None = None,
    name: str = "data", timeout: float = 600.0,
) -> Shards:  # fmt: skip
    """Share out the indices 0 to `items` in ranges of `size` among all processes of the run that ask.

    Args:
        items: how many there are; the same in every process.
        size: items a shard. Small enough that every worker gets dozens, large enough to take seconds.
        epoch: which pass over the data; each is shared out on its own.
        seed: mixes the order of the shards, another way each epoch; the same in every process.
        done: finished ranges to go back to, from `done()` in a checkpoint. Counts once for each start of the gang;
            leave it out where tasks are started again one by one (`restart: {scope: task}`).
        name: tells several data sets of one job apart.
        timeout: seconds without progress after which a shard is given to someone else.
    """
    if items < 0 or size < 1:
        message = f"shards(items={items}, size={size}): give at least 0 items and a size of at least 1"
        raise ValueError(message)
    count = -(-items // size)
    order: list[int] | range = range(count)
    if seed is not None:
        order = list(order)
        random.Random(f"{seed}/{epoch}").shuffle(order)
    shared = context.shared_dir()
    book = None
    if shared is not None:
        terms = {"items": items, "size": size, "epoch": epoch, "seed": seed}
        book = ledger.Ledger(os.path.join(shared, "shards", f"{name}-{epoch}"), count, terms, timeout)
    made = Shards(items, size, order, book)
    if done is not None:
        made.begin_with(done)
    return made


def _inside(items: range, covered: list[tuple[int, int]]) -> bool:
    return any(start <= items.start and items.stop <= end for start, end in covered)
