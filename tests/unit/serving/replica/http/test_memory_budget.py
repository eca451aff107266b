"""The memory of many connections is limited, and the largest is dropped first."""

from __future__ import annotations

import random

from fairway.serving.replica.http.memory_budget import MemoryBudget


class Client:
    """A connection that records when it is ended."""

    def __init__(self, held: MemoryBudget) -> None:
        self.held, self.ended = held, False

    def let_go(self) -> None:
        assert not self.ended
        self.ended = True
        self.held.free(self)


def test_the_largest_gives_way() -> None:
    held = MemoryBudget(1000)
    small, large, late = Client(held), Client(held), Client(held)
    held.take(small, 100)
    held.take(large, 850)
    held.take(late, 100)
    assert (small.ended, large.ended, late.ended, held.total) == (False, True, False, 200)
    held.take(late, 950)
    assert (small.ended, late.ended, held.total) == (False, True, 100)


def test_what_is_whole_stays_and_what_comes_is_refused() -> None:
    held = MemoryBudget(1000)
    whole, late = Client(held), Client(held)
    held.take(whole, 990)
    held.keep(whole)
    held.take(late, 20)
    assert (whole.ended, late.ended, held.total) == (False, True, 990)
    held.free(whole)
    assert held.total == 0


def test_large_bodies_leave_room_for_small_ones() -> None:
    held = MemoryBudget(8 << 20)
    large = [Client(held) for _ in range(4)]
    for client in large:
        held.take(client, 2 << 20)
        held.keep(client)
    small = Client(held)
    held.take(small, 1 << 19)
    assert ([client.ended for client in large], small.ended) == ([False, False, False, True], False)


def test_the_sum_is_right_whatever_happens() -> None:
    chance, held = random.Random(7), MemoryBudget(5000)
    clients = [Client(held) for _ in range(20)]
    for _ in range(3000):
        place = chance.randrange(20)
        client = clients[place]
        if client.ended:
            clients[place] = Client(held)
        elif chance.random() < 0.1:
            held.keep(client)
        elif chance.random() < 0.2:
            held.free(client)
        else:
            held.take(client, chance.randrange(900))
        assert held.total == sum(held._sizes.values())
        loose = held._sizes.keys() - held._firm
        assert loose == {each for group in held._loose for each in group}
        assert held.total <= 5000 or not loose
