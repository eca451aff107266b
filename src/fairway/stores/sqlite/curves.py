"""Metric points: one row a point, eight bytes a number; names are kept once a curve."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable

from fairway.app.ports import MetricPoint
from fairway.state.job import JobKey
from fairway.stores.sqlite import codec


class Curves:
    """The points of all runs. A curve is what one task reports under one set of names; its points are numbered from 0."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def add(self, points: Iterable[tuple[JobKey, MetricPoint]]) -> None:
        """Append, within the transaction of the caller. Points of unknown runs are dropped."""
        jobs: dict[JobKey, int | None] = {}
        grown: dict[tuple[int, str, str, str], list[int]] = {}
        rows: list[tuple[object, ...]] = []
        for key, point in points:
            if key not in jobs:
                jobs[key] = self._job(key)
            job = jobs[key]
            if job is None:
                continue
            names = sorted(point.metrics)
            place = (job, point.task, point.source, json.dumps(names))
            curve = grown.get(place)
            if curve is None:
                curve = grown[place] = self._curve(*place)
            rows.append(
                (job, curve[0], curve[1], point.time, point.step, codec.pack_floats([point.metrics[name] for name in names]))
            )
            curve[1] += 1
        self._connection.executemany("INSERT INTO point VALUES (?, ?, ?, ?, ?, ?)", rows)
        self._connection.executemany("UPDATE curve SET n = ? WHERE id = ?", [(count, curve) for curve, count in grown.values()])

    def read(self, key: JobKey, metric: str, limit: int) -> list[MetricPoint]:
        """Points in order of time, at most `limit`, of the curves that have the metric."""
        job = self._job(key)
        if job is None:
            return []
        curves = []
        for curve, task, source, names, count in self._connection.execute(
            "SELECT id, task, source, names, n FROM curve WHERE job = ? ORDER BY id", (job,)
        ).fetchall():
            known = json.loads(names)
            if not metric or metric in known:
                curves.append((curve, task, source, known, count))
        shares = share_out([count for *_, count in curves], limit)
        found = []
        for (curve, task, source, known, count), share in zip(curves, shares, strict=True):
            for time, step, data in self._thinned(job, curve, count, share):
                found.append(MetricPoint(time, step, dict(zip(known, codec.unpack_floats(data), strict=True)), task, source))
        found.sort(key=lambda point: point.time)
        return found

    def _thinned(self, job: int, curve: int, count: int, share: int) -> Iterable[tuple[float, int | None, bytes]]:
        if share <= 0:
            return ()
        sql = "SELECT time, step, data FROM point WHERE job = ? AND curve = ?"
        if share >= count:
            return self._connection.execute(f"{sql} ORDER BY seq", (job, curve))
        chosen = json.dumps(picks(count, share))
        return self._connection.execute(f"{sql} AND seq IN (SELECT value FROM json_each(?)) ORDER BY seq", (job, curve, chosen))

    def _job(self, key: JobKey) -> int | None:
        row = self._connection.execute(
            "SELECT id FROM job WHERE namespace = ? AND name = ?", (key.namespace, key.name)
        ).fetchone()
        return row[0] if row else None

    def _curve(self, job: int, task: str, source: str, names: str) -> list[int]:
        """Its id, and how many points it has."""
        row = self._connection.execute(
            "INSERT INTO curve (job, task, source, names, n) VALUES (?, ?, ?, ?, 0)"
            " ON CONFLICT DO UPDATE SET n = n RETURNING id, n",
            (job, task, source, names),
        ).fetchone()
        return list(row)


def share_out(counts: list[int], limit: int) -> list[int]:
    """How many points each curve may show: short ones all, long ones an equal part of what is left."""
    shares = [0] * len(counts)
    left = max(0, limit)
    order = sorted(range(len(counts)), key=counts.__getitem__)
    for position, which in enumerate(order):
        shares[which] = min(counts[which], left // (len(order) - position))
        left -= shares[which]
    return shares


def picks(count: int, share: int) -> list[int]:
    """Which `share` of `count` points to show: evenly spread, the last one always, the first unless only one fits."""
    if share == 1:
        return [count - 1]
    return [step * (count - 1) // (share - 1) for step in range(share)]
