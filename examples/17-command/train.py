"""No framework at all: workers learn a model of English from Python's own manual and communicate over plain sockets.

Each worker counts the word pairs in its share of the paragraphs. Worker 0 adds up the counts and sends the sum to all.
"""

import hashlib
import json
import math
import os
import socket
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from pydoc_data.topics import topics

import fairway

PATIENCE = 60.0


def connect(host: str, port: int) -> socket.socket:
    """Connect to worker 0; retry until it listens."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return socket.create_connection((host, port), timeout=PATIENCE)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def add_up(rank: int, addresses: list[str], counts: Counter) -> Counter:
    """Return the sum of all workers' counts, in every worker."""
    host, _, port = addresses[0].rpartition(":")
    if rank:
        with connect(host, int(port)) as peer, peer.makefile("rw") as stream:
            stream.write(json.dumps(counts) + "\n")
            stream.flush()
            return Counter(json.loads(stream.readline()))
    with socket.create_server((host, int(port))) as server:
        server.settimeout(PATIENCE)
        streams = [server.accept()[0].makefile("rw") for _ in addresses[1:]]
    for stream in streams:
        counts.update(json.loads(stream.readline()))
    for stream in streams:
        stream.write(json.dumps(counts) + "\n")
        stream.close()
    return counts


def pairs(paragraph: str) -> list[str]:
    words = ["<start>", *paragraph.lower().split()]
    return [f"{first} {second}" for first, second in pairwise(words)]


def surprise(counts: Counter, paragraphs: list[str]) -> float:
    """Return the bits per word that the model needs for unseen text."""
    firsts = Counter()
    for pair, number in counts.items():
        firsts[pair.split()[0]] += number
    asked = [pair for paragraph in paragraphs for pair in pairs(paragraph)]
    chances = ((counts[pair] + 0.01) / (firsts[pair.split()[0]] + 0.01 * len(firsts)) for pair in asked)
    return -sum(map(math.log2, chances)) / len(asked)


def main() -> None:
    """Count, add up, measure; then write this worker's results to a file."""
    addresses = json.loads(os.environ["FAIRWAY_PEERS"])["worker"]
    rank, world = int(os.environ["FAIRWAY_RANK"]), len(addresses)
    paragraphs = [part for _, text in sorted(topics.items()) for part in text.split("\n\n") if part.strip()]
    unseen = paragraphs[::10]
    mine = [number for number in range(len(paragraphs)) if number % 10][rank::world]
    counts = Counter(pair for number in mine for pair in pairs(paragraphs[number]))
    alone = surprise(counts, unseen)
    counts = add_up(rank, addresses, counts)
    together = surprise(counts, unseen)
    fairway.report(step=1, bits_alone=alone, bits=together)
    print(f"worker {rank} of {world}: {alone:.3f} bits a word alone, {together:.3f} together")
    digest = hashlib.sha256(json.dumps(sorted(counts.items())).encode()).hexdigest()
    note = {"rank": rank, "world_size": world, "samples": mine, "weights": digest, "bits_alone": alone, "bits": together}
    Path(os.environ["FAIRWAY_SHARED_DIR"], f"rank-{rank}.json").write_text(json.dumps(note))


if __name__ == "__main__":
    main()
