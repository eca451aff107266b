"""Run the cases of one client: run_cases.py MODULE '{"m": "http://...", ...}'; prints the result of each as JSON."""

from __future__ import annotations

import importlib
import json
import sys
import traceback
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))


def main() -> None:
    module = importlib.import_module(sys.argv[1])
    warnings.simplefilter("ignore")
    world = module.World(json.loads(sys.argv[2]))
    found = {}
    for case in module.CASES.all.values():
        try:
            case.run(world)
        except Exception as error:  # noqa: BLE001  # whatever a client raises is the answer
            where = traceback.extract_tb(error.__traceback__)[-1]
            found[case.name] = f"{type(error).__name__}: {error} ({where.filename.rpartition('/')[2]}:{where.lineno})"
        else:
            found[case.name] = ""
    world.close()
    json.dump({"found": found, "surface": sorted(module.surface())}, sys.stdout)


if __name__ == "__main__":
    main()
