"""Kubernetes is an extra: the rest of Fairway does not import its dependencies."""

import subprocess
import sys


def test_the_command_line_and_the_daemon_do_not_load_the_client():
    code = "import fairway.cli.main, fairway.bootstrap.daemon, sys; sys.exit('aiohttp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
