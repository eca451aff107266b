"""Dynamic sharding of data: ranges of indices are leased to workers, so that fast and slow workers finish together.

    for shard in fairway.shards(len(dataset), size=1000, epoch=epoch):
        for i in shard:
            train(dataset[i])

Requesting the next shard marks the previous one as done. If a worker dies, or makes no progress for `timeout` seconds, its shard
is given to another worker, from the beginning. So no data is skipped, and only the shard of a failed worker is processed twice.
Shards that are done stay done when the job is restarted. To return to the state of a checkpoint, store `done()` in the checkpoint
and pass it back:

    data = fairway.shards(n, size=1000, done=start.meta["shards"] if start else [])
    ...
    with fairway.checkpoint.save(step, shards=data.done()) as folder: ...

All state is in files in the run's shared folder, protected by a file lock; there is no server. Outside of a job there is one
worker and nothing is written.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterable, Iterator
from typing import Any

from fairway.runtime import shard_ledger, stop, task_context

_POLL = 0.05


class Shard:
    """A range of indices, `start` to `stop`. Iterating over it renews the lease; so does `renew()`."""

    def __init__(self, items: range, lease: shard_ledger.ShardLease | None) -> None:
        self.start = items.start
        self.stop = items.stop
        self._lease = lease

    def __len__(self) -> int:
        """Return the number of items."""
        return self.stop - self.start

    def __iter__(self) -> Iterator[int]:
        """Yield the indices. Each one counts as progress."""
        for item in range(self.start, self.stop):
            self.renew()
            yield item

    def renew(self) -> None:
        """Renew the lease, for code that does not iterate over the indices one by one."""
        if self._lease:
            self._lease.renew()

    def __repr__(self) -> str:
        """`Shard(1000, 2000)`."""
        return f"Shard({self.start}, {self.stop})"


class Shards:
    """The shards of one pass over the data. Any number of processes may iterate; each shard goes to one of them."""

    def __init__(self, items: int, size: int, order: list[int] | range, book: shard_ledger.ShardLedger | None) -> None:
        self._items = items
        self._size = size
        self._order = order
        self._book = book
        self._alone: set[int] = set()

    def __iter__(self) -> Iterator[Shard]:
        """Lease one shard after another until all are done, including shards that failed workers had started."""
        if self._book is None:
            return self._iterate_alone()
        return self._iterate_leased(self._book)

    def __len__(self) -> int:
        """Return the total number of shards."""
        return len(self._order)

    def done(self) -> list[list[int]]:
        """Return the index ranges that are done, merged: `[[0, 3000], [5000, 6000]]`. The result is JSON, for a checkpoint."""
        numbers = self._alone if self._book is None else self._book.done()
        merged: list[list[int]] = []
        for items in (self._range(number) for number in sorted(self._order[position] for position in numbers)):
            if merged and merged[-1][1] == items.start:
                merged[-1][1] = items.stop
            else:
                merged.append([items.start, items.stop])
        return merged

    def _iterate_alone(self) -> Iterator[Shard]:
        for position in range(len(self._order)):
            if position not in self._alone:
                yield Shard(self._range(self._order[position]), None)
                self._alone.add(position)

    def _iterate_leased(self, book: shard_ledger.ShardLedger) -> Iterator[Shard]:
        with book.lease() as lease:
            while True:
                taken = book.take(lease)
                if taken is None:
                    # Other workers hold shards that may become free, unless this task is requested to stop.
                    if book.complete() or stop.requested():
                        return
                    time.sleep(_POLL)
                    continue
                yield Shard(self._range(self._order[taken]), lease)
                book.finish(lease, taken)

    def _range(self, number: int) -> range:
        return range(number * self._size, min((number + 1) * self._size, self._items))

    def begin_with(self, done: Iterable[Any]) -> None:
        """Mark these ranges as done and all others as not done; see `done` of `shards`."""
        covered = [(int(start), int(end)) for start, end in done]
        positions = [position for position, number in enumerate(self._order) if _inside(self._range(number), covered)]
        if self._book is None:
            self._alone = set(positions)
        else:
            self._book.begin_with(positions, task_context.attempt_token())


def shards(
    items: int, size: int, *, epoch: int = 0, seed: int | None = None, done: Iterable[Any] | None = None,
    name: str = "data", timeout: float = 600.0,
) -> Shards:  # fmt: skip
    """Distribute the indices 0 to `items` in ranges of `size` among all processes of the run that call this.

    Args:
        items: number of items; the same in every process.
        size: items per shard. Small enough that every worker gets dozens, large enough to take seconds.
        epoch: number of the pass over the data; each pass is distributed on its own.
        seed: shuffles the shards, differently in each epoch; the same in every process.
        done: ranges that are done, from `done()` in a checkpoint. Applied once per start of the gang;
            do not use it if tasks are restarted one by one (`restart: {scope: task}`).
        name: distinguishes several data sets of one job.
        timeout: seconds without progress after which a shard is given to another worker.
    """
    if items < 0 or size < 1:
        message = f"shards(items={items}, size={size}): give at least 0 items and a size of at least 1"
        raise ValueError(message)
    count = -(-items // size)
    order: list[int] | range = range(count)
    if seed is not None:
        order = list(order)
        random.Random(f"{seed}/{epoch}").shuffle(order)
    shared = task_context.shared_dir()
    book = None
    if shared is not None:
        terms = {"items": items, "size": size, "epoch": epoch, "seed": seed}
        book = shard_ledger.ShardLedger(os.path.join(shared, "shards", f"{name}-{epoch}"), count, terms, timeout)
    result = Shards(items, size, order, book)
    if done is not None:
        result.begin_with(done)
    return result


def _inside(items: range, covered: list[tuple[int, int]]) -> bool:
    return any(start <= items.start and items.stop <= end for start, end in covered)
