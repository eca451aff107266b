"""Entry point: `python -m fairway` runs the `fairway` command."""

from __future__ import annotations

import sys

from fairway.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
