"""The programs of the suite: how each is started by its own launcher and by Fairway, and what proves that both did the same.

Programs from wheels and source distributions are run unchanged; they are read from the environment, or from the distribution that
pip downloads, and none of them is in this repository.
"""

from __future__ import annotations

from dataclasses import dataclass, field

MPI_SOURCES = "mpi4py==4.1.2"
RANKS = r"rank (\d+) of (\d+) has (\[[^\]]*\](?: and saw \[[^\]]*\])?|-?\d+\.?\d*(?: -?\d+\.\d+)?)"
"""The output of our own programs, one line per rank. Lines of ranks that share a pipe may be joined."""
HELLO = r"I am process (\d+) of (\d+)"
RING = r"time for (\d+) loops = .*\((\d+) processes, (\d+) bytes\)"
BENCH = "python -m mpi4py.bench"
SCRIPTS = "{site}/accelerate/test_utils/scripts"
TORCHRUN = "torchrun --standalone --nproc-per-node 2"
MPIRUN = "mpirun --oversubscribe"


@dataclass(frozen=True)
class Program:
    """One program, started in one way."""

    name: str
    environment: str
    """The environment: a file of `tests/requirements`."""
    own: str
    """Its own launcher's command line, without Fairway."""
    ours: str
    """The arguments of `fairway run` and `fairway submit`."""
    facts: str = RANKS
    """The part of its output that must be the same, as a regular expression."""
    count: int = 2
    """The expected number of matches."""
    files: str = "suite"
    """`suite`: ours; `wheel`: installed in the environment; `sdist:FOLDER`: a folder of mpi4py's source distribution."""
    variables: dict[str, str] = field(default_factory=dict)
    sampled: bool = True
    """Whether it is short enough for the sample of every test run."""

    @property
    def third_party(self) -> bool:
        """Whether the program is third-party and unchanged."""
        return self.files != "suite"


def mpi(
    name: str, file: str, folder: str, facts: str, count: int, ranks: int = 2, launcher: str = "python", **more: bool
) -> Program:
    """Return a demo of mpi4py under `mpirun`."""
    command = f"{MPIRUN} -n {ranks} {launcher} {file}"
    return Program(name, "mpi", command, f"-- {command}", facts, count, f"sdist:{folder}", **more)


PROGRAMS = (
    # PyTorch, started in every common way.
    Program("torch-ranks", "torch", f"{TORCHRUN} ddp.py", "-w 2 -- python ddp.py"),
    Program("torch-processes", "torch", f"{TORCHRUN} ddp.py", "--processes 2 -- python ddp.py"),
    Program("torch-torchrun", "torch", f"{TORCHRUN} ddp.py", "-w 2 -- torchrun ddp.py"),
    Program("torch-torchrun-alone", "torch", f"{TORCHRUN} ddp.py", f"-- {TORCHRUN} ddp.py"),
    Program("torch-torchrun-nproc", "torch", f"{TORCHRUN} ddp.py", "-- torchrun --nproc-per-node 2 ddp.py"),
    Program("torch-run-module", "torch", f"{TORCHRUN} ddp.py", "-w 2 -- python -m torch.distributed.run ddp.py"),
    Program(
        "torch-nodes-and-ranks",
        "torch",
        "torchrun --standalone --nproc-per-node 4 ddp.py",
        "-w 2 -- torchrun --nproc-per-node 2 ddp.py",
        count=4,
    ),
    Program("torch-script", "torch", f"{TORCHRUN} ddp.py", "-w 2 -- bash train.sh"),
    Program(
        "torch-script-nodes", "torch", "torchrun --standalone --nproc-per-node 4 ddp.py", "-w 2 -- bash train_nodes.sh", count=4
    ),
    Program("torch-shell", "torch", f"{TORCHRUN} ddp.py", "-w 2 -- bash -c 'exec python ddp.py'"),
    Program("torch-spawn", "torch", "python spawn.py", "-- python spawn.py"),
    Program("accelerate-ranks", "torch", f"{TORCHRUN} accelerated.py", "-w 2 -- python accelerated.py"),
    Program("accelerate-launch", "torch", f"{TORCHRUN} accelerated.py", "-w 2 -- accelerate launch --cpu accelerated.py"),
    Program("accelerate-script", "torch", f"{TORCHRUN} accelerated.py", "-w 2 -- bash accelerate.sh"),
    Program(
        "lightning-nodes",
        "torch",
        "python lightning_fit.py",
        "-w 2 -e NODES=2 -e DEVICES=1 -- python lightning_fit.py",
        variables={"DEVICES": "2"},
    ),
    Program(
        "lightning-own-ranks",
        "torch",
        "python lightning_fit.py",
        "-e DEVICES=2 -- python lightning_fit.py",
        variables={"DEVICES": "2"},
    ),
    Program(
        "fabric",
        "torch",
        "python fabric_sum.py",
        "-w 2 -e NODES=2 -e DEVICES=1 -- python fabric_sum.py",
        variables={"DEVICES": "2"},
    ),
    # JAX, TensorFlow and Keras.
    Program("jax-ranks", "jax", "bash two_jax.sh 2", "-w 2 -- python jax_sum.py"),
    Program("jax-one", "jax", "bash two_jax.sh 1", "-- python jax_sum.py", count=1),
    Program("tensorflow-workers", "tensorflow", "bash two_tensorflow.sh", "-w 2 -- python keras_multi.py", sampled=False),
    Program("keras", "tensorflow", "python keras_fit.py", "-- python keras_fit.py", r"weights (\[.*\])", 1),
    # Hugging Face's Trainer, and XGBoost.
    Program("hugging-face-trainer", "torch", f"{TORCHRUN} hf_trainer.py", "-w 2 -- python hf_trainer.py"),
    Program("xgboost", "xgboost", "bash two_xgboost.sh", "-w 2 -- python xgb_train.py"),
    # MPI.
    Program("mpi-mpirun", "mpi", f"{MPIRUN} -n 2 python mpi_sum.py", f"-- {MPIRUN} -n 2 python mpi_sum.py"),
    Program("mpi-framework", "mpi", f"{MPIRUN} -n 2 python mpi_sum.py", "--framework mpi -w 2 -- python mpi_sum.py"),
    Program("mpi-script", "mpi", f"{MPIRUN} -n 2 python mpi_sum.py", "-- bash mpi.sh"),
    # Third-party programs, unchanged: from wheels ...
    Program(
        "accelerate-test-script",
        "torch",
        f"{TORCHRUN} {SCRIPTS}/test_script.py",
        f"-w 2 -- python {SCRIPTS}/test_script.py",
        r"(Num processes: \d+|Process index: \d+|\*\*[A-Z][^*]+\*\*"
        r"|\w+(?:-\w+)?(?: central)? dataloader passing\.|All rng are properly synched\.)",
        0,
        "wheel",
        {"ACCELERATE_USE_CPU": "true"},
        sampled=False,
    ),
    Program(
        "accelerate-test-sync",
        "torch",
        f"{TORCHRUN} {SCRIPTS}/test_sync.py",
        f"-w 2 -- accelerate launch --cpu {SCRIPTS}/test_sync.py",
        r"(\*\*Test Distributed [^*]+\*\*)",
        0,
        "wheel",
        {"ACCELERATE_USE_CPU": "true"},
        sampled=False,
    ),
    Program(
        "mpi4py-bench-hello",
        "mpi",
        f"{MPIRUN} -n 2 {BENCH} helloworld",
        f"-- {MPIRUN} -n 2 {BENCH} helloworld",
        HELLO,
        2,
        "wheel",
    ),
    Program(
        "mpi4py-bench-hello-framework",
        "mpi",
        f"{MPIRUN} -n 3 {BENCH} helloworld",
        f"--framework mpi -w 3 -- {BENCH} helloworld",
        HELLO,
        3,
        "wheel",
    ),
    Program(
        "mpi4py-bench-ring", "mpi", f"{MPIRUN} -n 2 {BENCH} ringtest", f"-- {MPIRUN} -n 2 {BENCH} ringtest", RING, 1, "wheel"
    ),
    # ... and from the source distribution of mpi4py.
    mpi("mpi4py-hello", "helloworld.py", ".", HELLO, 2),
    mpi("mpi4py-sequential", "test_seq.py", "sequential", HELLO, 2),
    mpi("mpi4py-reductions", "test_reductions.py", "reductions", r"(Ran \d+ tests|^OK)", 4),
    mpi("mpi4py-primes", "run_primes.py", "futures", r"(\d+ is prime: \w+)", 0, 3, "python -m mpi4py.futures"),
    mpi("mpi4py-barrier", "osu_barrier.py", ".", r"(# MPI Barrier Latency Test)", 1),
    # These print nothing: with a wrong number of ranks they fail or wait for ever.
    mpi("mpi4py-send-receive", "ex-2.01.py", "mpi-ref-v1", "", 0),
    mpi("mpi4py-probe", "ex-2.29.py", "mpi-ref-v1", "", 0, 3),
    mpi("mpi4py-persistent", "ex-2.32.py", "mpi-ref-v1", "", 0, 3),
    mpi("mpi4py-threads", "sendrecv.py", "threads", "", 0),
    mpi("mpi4py-counter", "nxtval-threads.py", "nxtval", "", 0),
)
