"""A small language model of word pairs, learnt from a text; it generates, embeds and counts."""

import collections
import itertools
import os
import random
import signal

import numpy as np


class Model:
    """Bigrams."""

    def load(self, folder):
        with open(os.path.join(folder, "text.txt"), encoding="utf-8") as file:
            words = file.read().split()
        self.next = collections.defaultdict(list)
        for first, second in itertools.pairwise(words):
            self.next[first].append(second)
        self.words = sorted(set(words))

    def generate(self, prompt, options):
        if isinstance(prompt, list):
            prompt = prompt[-1]["content"]
        if prompt == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if prompt == "fail":
            raise RuntimeError("no words left")
        chance = random.Random(options.get("seed", 0))
        word = prompt.split()[-1] if prompt.split() else ""
        while True:
            word = chance.choice(self.next.get(word) or self.words)
            yield f"{word} "

    def embed(self, texts):
        return np.array([[text.split().count(word) for word in self.words] for text in texts])

    def count(self, text):
        return len(text.split())
