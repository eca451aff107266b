"""Time of the scheduler from an event to the next decision, and gangs started per second.

100,000 jobs of 20 queues, 500 users and about 300 kinds wait for 10,000 nodes with 8 GPUs that are nearly all busy. Jobs
end and arrive, nodes change; the measured value is the CPU time from the event to the decision, including the update of all
indexes. First, decisions are made until nothing changes any more: an evicted job has ended by the next decision. Then jobs
end until twenty decisions in a row evict no job. On 5,000 idle nodes, gangs of 4, 64 and 1,000 tasks are started as fast as
possible.

    python benchmarks/scheduler.py [--nodes 10000] [--jobs 100000] [--events 600]
"""

from __future__ import annotations

import argparse
import heapq
import random
import resource
import statistics
import time
from dataclasses import replace

from bench import tell

from fairway.plan.scheduling.cluster import ClusterModel
from fairway.plan.scheduling.delta import Delta, NodeChanged, QueueDefined, RunStopped, RunWaiting
from fairway.plan.scheduling.gang import GangRole, GangShape, TaskShape
from fairway.plan.scheduling.gang_request import GangRequest
from fairway.plan.scheduling.scheduler import Scheduler
from fairway.state.job import JobKey
from fairway.state.node import ClusterNode, NodeDevice
from fairway.state.queue import Queue

GIB = 1 << 30
KINDS = ["V100", "A100", "H100"]
GPUS = 8


def node(number: int) -> ClusterNode:
    """Return a node with 8 GPUs; a rack has 32 such nodes."""
    name = f"node-{number:05}"
    kind = KINDS[number * len(KINDS) // 20_000 % len(KINDS)] if number % 5 else "A100"
    devices = tuple(NodeDevice(f"{name}-{index}", index, kind, 40 * GIB) for index in range(GPUS))
    return ClusterNode(name, 96, 768 * GIB, devices, rack=f"rack-{number // 32:03}")


def gangs(draw: random.Random, count: int) -> list[tuple[GangShape, float]]:
    """Return kinds of gangs with their frequency: mostly one GPU or a part of one, some whole nodes, a few very large."""
    found = []
    for _ in range(count):
        tasks, gpus, weight = draw.choices(
            [
                (1, 1, 40),
                (1, 2, 10),
                (1, 4, 10),
                (1, 8, 8),
                (2, 8, 4),
                (4, 8, 3),
                (8, 8, 2),
                (32, 8, 0.4),
                (64, 8, 0.2),
                (4, 1, 6),
                (1, 0, 5),
            ],
            [40, 10, 10, 8, 4, 4, 3, 2, 2, 8, 8],
        )[0]
        milli = draw.choice([250, 500, 1000, 1000, 1000]) if gpus == 1 else 1000
        kinds = draw.choice([(), (), (), ("A100",), ("V100", "A100")]) if gpus else ()
        shape = TaskShape(
            draw.choice([1, 2, 4, 8]) * 1000 * max(1, gpus),
            draw.choice([4, 8, 16, 32]) * 1024 * max(1, gpus),
            gpus,
            milli,
            0,
            kinds,
        )
        most = tasks * 2 if tasks > 1 and draw.random() < 0.2 else tasks
        found.append((GangShape((GangRole("worker", shape, tasks, most),)), weight / max(1, tasks)))
    return found


class Load:
    """Jobs that arrive and end, with durations that the scheduler does not know."""

    def __init__(self, nodes: int, seed: int, policy: str) -> None:
        self.draw = random.Random(seed)
        self.scheduler = Scheduler(policy=policy)
        self.now = 0.0
        self.kinds = gangs(self.draw, 300)
        self.ends: list[tuple[float, JobKey]] = []
        self.requests: dict[JobKey, GangRequest] = {}
        self.count = 0
        self.users = [f"user{number:03}" for number in range(500)]
        self.nodes = [node(number) for number in range(nodes)]
        for each in self.nodes:
            self.tell(NodeChanged(each))
        for number in range(20):
            self.tell(QueueDefined(self._queue(number)))

    def _queue(self, number: int) -> Queue:
        gpus = len(self.nodes) * GPUS
        per_user = {"gpu": gpus * 5, "runs": 400} if number % 4 == 1 else {}
        quota = {"gpu": gpus * 1000 // 25} if number % 4 == 2 else {}
        return Queue(f"q{number:02}", weight=1 + number % 3, quota=quota, per_user=per_user, borrow=number % 8 != 2)

    def tell(self, delta: Delta) -> None:
        """Apply a change to the scheduler."""
        self.scheduler.apply(delta, self.now)

    def job(self) -> GangRequest:
        """Return one more waiting job."""
        self.count += 1
        gang = self.draw.choices([kind for kind, _ in self.kinds], [weight for _, weight in self.kinds])[0]
        user = self.draw.randrange(len(self.users))
        series = f"series{self.draw.randrange(8)}"
        return GangRequest(
            JobKey("default", f"job-{self.count:07}"),
            gang,
            self.now + self.count * 1e-6,
            queue=f"q{user % 20:02}",
            user=self.users[user],
            name=series,
            priority=self.draw.choices([0, 10], [97, 3])[0],
            limit=self.draw.choice([None, None, 3600.0, 14400.0, 86400.0]),
            resumes=self.draw.random() < 0.5,
        )

    def ask(self) -> None:
        """Let a job arrive."""
        request = self.job()
        self.requests[request.key] = request
        self.tell(RunWaiting(request))

    def decide(self) -> tuple[int, int]:
        """Decide and carry out the decision; return the numbers of started and evicted jobs."""
        decision = self.scheduler.decide(self.now)
        for start in decision.starts:
            heapq.heappush(self.ends, (self.now + self.draw.expovariate(1 / 7200), start.key))
        for evict in decision.evictions:
            heapq.heappush(self.ends, (self.now + 30.0, evict.key))
        return len(decision.starts), len(decision.evictions)

    def end(self) -> None:
        """End the next job, or let an evicted job stop and wait again."""
        while True:
            at, key = heapq.heappop(self.ends)
            running = self.scheduler.ledger.running.get(key)
            if running is not None:
                break
        self.now = max(self.now, at)
        if running.leaving:
            self.leave(key)
        else:
            self.tell(RunStopped(key, self.now, finished=True))
            self.requests.pop(key, None)
            self.scheduler.ledger.memory.ran.pop(str(key), None)
            self.scheduler.ledger.memory.left.pop(str(key), None)

    def leave(self, key: JobKey) -> None:
        """Let an evicted job stop and wait again."""
        self.tell(RunStopped(key, self.now, finished=False))
        self.tell(RunWaiting(self.requests[key]))

    def settle(self) -> None:
        """Decide until nothing changes any more."""
        while any(self.decide()):
            for key in sorted(self.scheduler.ledger.roster.leaving):
                self.leave(key)

    def change_node(self) -> None:
        """Make a device unhealthy, or healthy again."""
        number = self.draw.randrange(len(self.nodes))
        before = self.nodes[number]
        sick = replace(before.devices[0], healthy=not before.devices[0].healthy)
        self.nodes[number] = replace(before, devices=(sick, *before.devices[1:]))
        self.tell(NodeChanged(self.nodes[number]))


def cpu() -> float:
    """Return the CPU time of this process in seconds."""
    return time.process_time()


def begin(nodes: int, jobs: int, seed: int, policy: str) -> Load:
    """Return a load with this many nodes, all busy, and this many waiting jobs."""
    load = Load(nodes, seed, policy)
    for _ in range(jobs + nodes * 4):
        load.ask()
    load.decide()
    while len(load.scheduler.ledger.room) < jobs:
        load.ask()
    load.settle()
    quiet = 0
    while quiet < 20:
        load.end()
        quiet = 0 if load.decide()[1] else quiet + 1
    while len(load.scheduler.ledger.room) < jobs:
        load.ask()
        load.decide()
    return load


def play(load: Load, events: int) -> tuple[dict[str, list[float]], int, int]:
    """Return milliseconds by kind of event, and the numbers of started and evicted jobs."""
    took: dict[str, list[float]] = {"job ends": [], "job arrives": [], "node changes": []}
    starts = evictions = 0
    for number in range(events):
        what, act = list(zip(took, [load.end, load.ask, load.change_node], strict=True))[number % 3]
        load.now += 0.05
        before = cpu()
        act()
        done = load.decide()
        took[what].append(1000 * (cpu() - before))
        starts, evictions = starts + done[0], evictions + done[1]
    return took, starts, evictions


def measure_events(nodes: int, jobs: int, events: int, seed: int, policy: str) -> None:
    """Measure the time from an event to the next decision, with very many waiting jobs."""
    began = cpu()
    load = begin(nodes, jobs, seed, policy)
    warm = cpu() - began
    took, starts, evictions = play(load, events)
    ledger = load.scheduler.ledger
    free, idle = ledger.cluster.free_gpus()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    for what, times in took.items():
        median = statistics.median(times)
        p99 = sorted(times)[int(0.99 * len(times))]
        tell(
            f"one event to the next decision, ms of CPU: {what}",
            median,
            "<= 5",
            met=median <= 5,
            mean=round(statistics.fmean(times), 2),
            p99=round(p99, 2),
            worst=round(max(times), 2),
            waiting=len(ledger.room),
            lines=ledger.room.line_count,
            running=len(ledger.running),
            kept=len(ledger.memory.reservations),
            idle_gpus=idle,
        )
    tell("memory, GiB", memory, "<= 2", met=memory <= 2, begun_in_s=round(warm, 1), starts=starts, evictions=evictions, free=free)


def measure_gangs(nodes: int, tasks: int, must: int, policy: str) -> None:
    """Measure gangs started per second, through the scheduler and by the cluster state alone."""
    shape = TaskShape(1000, 4096, 1)
    gang = GangShape((GangRole("worker", shape, tasks, tasks),))
    count = min(2000, nodes * GPUS * 9 // 10 // tasks)
    fleet = [node(number) for number in range(nodes)]
    cluster = ClusterModel(fleet, policy)
    cluster.place(gang)
    before = cpu()
    for _ in range(count):
        cluster.place(gang)
    alone = count / (cpu() - before)
    scheduler = Scheduler(policy=policy)
    for each in fleet:
        scheduler.apply(NodeChanged(each), 0.0)
    scheduler.apply(RunWaiting(GangRequest(JobKey("default", "first"), gang, 0.0)), 0.0)
    scheduler.decide(0.0)
    for number in range(count):
        scheduler.apply(RunWaiting(GangRequest(JobKey("default", f"job-{number:05}"), gang, 1.0 + number)), 1.0)
    before = cpu()
    started = len(scheduler.decide(2.0).starts)
    rate = started / (cpu() - before)
    tell(
        f"gangs of {tasks} tasks a second, {nodes} nodes",
        rate,
        f">= {must}",
        met=rate >= must,
        cluster_alone=round(alone),
        started=started,
    )


def main() -> None:
    """Print all measurements, one line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--events", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--policy", default="fairway")
    parser.add_argument("--only", choices=["events", "gangs"])
    args = parser.parse_args()
    if args.only != "events":
        for tasks, must in ((4, 3000), (64, 500), (1000, 50)):
            measure_gangs(args.nodes // 2, tasks, must, args.policy)
    if args.only != "gangs":
        measure_events(args.nodes, args.jobs, args.events, args.seed, args.policy)


if __name__ == "__main__":
    main()
