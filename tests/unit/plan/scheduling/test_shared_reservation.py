"""A reservation for a part of a GPU is used although other tasks run on the rest of that GPU."""

from fairway.plan.scheduling.gang import GangRole, GangShape, TaskShape
from fairway.state.queue import Queue
from fairway.testing.fake.fake_cluster import GRACE, FakeCluster, machine

SHARE = TaskShape(cpu=1000, gpus=1, gpu_milli=300, other=(("nic", 1),))


def test_a_run_starts_beside_the_elastic_run_that_shrank_for_it() -> None:
    cluster = FakeCluster(
        [machine("n1", 2, "T4", cpu=8, nic=2), machine("n2", 2, "T4", cpu=8, nic=1)], [Queue("a", borrow=False)]
    )
    elastic = GangShape((GangRole("worker", SHARE, 1, 2), GangRole("server", TaskShape(cpu=1000), 1, 1)))
    cluster.ask("elastic", elastic, queue="a", user="ann", priority=5)
    cluster.settle()
    elastic_run = next(iter(cluster.running))
    assert len(cluster.running[elastic_run].seats) == 3
    cluster.save(elastic_run)
    cluster.pass_time(4000)
    cluster.ask("pair", GangShape((GangRole("worker", SHARE, 2, 2),)), queue="a", user="ann", priority=5)
    cluster.settle()
    assert cluster.running[elastic_run].leaving
    cluster.pass_time(GRACE + 1)
    # The three network cards are enough for one worker of the elastic run and for both of the pair.
    assert {str(key): len(running.seats) for key, running in cluster.running.items()} == {
        "default/elastic": 2,
        "default/pair": 2,
    }
