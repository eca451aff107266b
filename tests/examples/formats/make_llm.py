"""The language model of the example, which counts, as GGUF. Its output is known without running it."""

import sys
from pathlib import Path

from kept import keep, made

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "examples" / "21-llm"))
import counting

counting.write(str(made("gguf-counting") / "model.gguf"))
PROMPTS = ["count:", "1 2 3:", "again:", "x:", "the sea:", "a:", "b:", "c:"]
keep(
    "gguf-counting",
    {"prompt": PROMPTS},
    lambda given: {"text": ["".join(f" {place}" for place in range(1, 13)) for _ in given["prompt"]]},
    max_tokens=12,
)
