"""`python -m fairway.bootstrap serve` runs the daemon, `python -m fairway.bootstrap operate` a cluster's operator."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the process named on the command line."""
    match sys.argv[1:]:
        case ["serve"]:
            from fairway.bootstrap import startup  # noqa: PLC0415 - each needs packages that the other runs without

            return startup.main()
        case ["operate"]:
            from fairway.bootstrap import operator  # noqa: PLC0415

            return operator.main()
        case _:
            sys.stderr.write("usage: python -m fairway.bootstrap serve|operate\n")
            return 2


if __name__ == "__main__":
    sys.exit(main())
