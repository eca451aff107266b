"""The interpreter that has PyTorch: `scripts/framework-venv torch` creates it."""

from pathlib import Path

_VENV = Path(__file__).resolve().parents[1] / ".venvs" / "torch" / "bin"
TORCH_PYTHON = str(_VENV / "python")
TORCHRUN = str(_VENV / "torchrun")
