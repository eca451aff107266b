"""Calls torchrun from a script that Fairway does not parse."""

import subprocess
import sys

sys.exit(subprocess.call(["torchrun", "ddp_gang.py"]))
