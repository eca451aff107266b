"""Modules that may be imported ahead are found in a program's source."""

from __future__ import annotations

import pytest

from fairway.launch.early_import import early_imports, script_of


@pytest.mark.parametrize(
    ("argv", "script"),
    [
        (["python", "train.py"], "train.py"),
        (["/venv/bin/python3.12", "src/train.py", "--lr", "1"], "src/train.py"),
        (["python3", "/abs/train.py"], "/abs/train.py"),
        (["python", "-u", "train.py"], ""),
        (["python", "-m", "train"], ""),
        (["python", "-c", "import torch"], ""),
        (["python"], ""),
        (["torchrun", "train.py"], ""),
        (["bash", "train.py"], ""),
        (["pythonic", "train.py"], ""),
        (["python", "-x.py"], ""),
    ],
)
def test_only_a_plain_script_counts(argv: list[str], script: str) -> None:
    assert script_of(argv) == script


@pytest.mark.parametrize(
    ("text", "modules"),
    [
        ("import torch", ("torch",)),
        ('"""Doc."""\nfrom __future__ import annotations\nimport os, sys\nimport torch\n', ("torch",)),
        (
            "import numpy as np\nimport torch.nn as nn\nfrom torch.utils.data import DataLoader",
            ("numpy", "torch.nn", "torch.utils.data"),
        ),
        ("import fairway\nimport torch", ("torch",)),
        ("import torch\nimport mine\nimport torch.distributed", ("torch",)),
        ("import torch\nx = 1\nimport torch.distributed", ("torch",)),
        ("import torch\nimport torch", ("torch",)),
        ("import torch\ntorch.optim.SGD([])", ("torch", "torch._dynamo")),
        ("import torch\nfrom torch import optim", ("torch", "torch._dynamo")),
        ("import torch\ndef f():\n    import torch.optim.lr_scheduler", ("torch", "torch._dynamo")),
    ],
)
def test_imports_at_the_top_in_their_order(text: str, modules: tuple[str, ...]) -> None:
    assert early_imports(text) == modules


@pytest.mark.parametrize(
    "text",
    [
        "",
        "print(1)",
        "import os\nos.environ['OMP_NUM_THREADS'] = '1'\nimport torch",
        "import mine\nimport torch",
        "from . import mine\nimport torch",
        "try:\n    import torch\nexcept ImportError:\n    torch = None",
        "if True:\n    import torch",
        "def f():\n    import torch",
        "import numpy",
        "import tensorflow",
        "import torch as",
        "import torch\0",
        "(" * 10_000 + ")" * 10_000,
    ],
)
def test_in_doubt_nothing_is_imported_ahead(text: str) -> None:
    assert early_imports(text) == ()
