"""Small ONNX models, and an application around one without a socket."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # makes `small_models.py` importable for the tests in this folder
