"""The Python SDK on real processes: functions as jobs."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
import asyncio, fairway

FACTOR = 3

def work(x, y=1):
    print("rank", fairway.rank())
    return fairway.rank(), fairway.world_size(), x * y * FACTOR

def fail():
    raise ValueError("no such digit")

async def main():
    client = fairway.AsyncClient()
    jobs = await asyncio.gather(*(client.submit(work, name="many", args=(number,)) for number in range(3)))
    print(sorted(job.name for job in jobs), [await client.result(job, timeout=60) for job in jobs])
    try:
        await client.result(await client.submit(fail), timeout=60)
    except Exception as error:
        print(repr(error.__cause__))

if __name__ == "__main__":
    client = fairway.Client()
    job = client.submit(work, workers=2, args=(2,), kwargs={"y": 5})
    print(job.name, client.results(job, timeout=60), sorted(client.logs(job)))
    print(client.run(work, workers=2, args=(1,), name="whole"), list(client.submit(work, args=(1,), name="own").wait().logs()))
    asyncio.run(main())
"""


def test_functions_run_as_jobs_and_their_results_come_back(desk) -> None:
    desk.write("program.py", PROGRAM)
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=desk.folder,
        env={**os.environ, **desk.environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "work-1 ((0, 2, 30), (1, 2, 30)) ['worker-0 | rank 0', 'worker-1 | rank 1']",
        "(0, 2, 3) ['rank 0']",
        "['many-1', 'many-2', 'many-3'] [(0, 1, 0), (0, 1, 3), (0, 1, 6)]",
        "ValueError('no such digit')",
    ]
