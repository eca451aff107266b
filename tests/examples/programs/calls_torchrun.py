"""Calls torchrun where no reader of commands and scripts sees it."""

import subprocess
import sys

sys.exit(subprocess.call(["torchrun", "ddp_gang.py"]))
