"""Environment variables and files that engines and tasks agree on.

An engine sets the variables and creates the folders; `fairway.runtime` reads them inside the task. This is the whole interface
between the two.
"""

JOB = "FAIRWAY_JOB"
"""Name of the run, for example `mnist-7`."""
NAMESPACE = "FAIRWAY_NAMESPACE"
TASK = "FAIRWAY_TASK"
"""`worker-0`: role and index."""
ROLE = "FAIRWAY_ROLE"
INDEX = "FAIRWAY_INDEX"
ATTEMPT = "FAIRWAY_ATTEMPT"
"""Number of times this task was started before; 0 the first time."""
RANK = "FAIRWAY_RANK"
"""Rank of this process among all that compute together (workers and chief; not ps, evaluator or launcher)."""
LOCAL_RANK = "FAIRWAY_LOCAL_RANK"
"""Rank of this process within its task. `LOCAL_RANK` counts over the tasks of a node, if that is safe for devices."""
LOCAL_WORLD_SIZE = "FAIRWAY_LOCAL_WORLD_SIZE"
WORLD_SIZE = "FAIRWAY_WORLD_SIZE"
FIRST_ON_NODE = "FAIRWAY_FIRST_ON_NODE"
"""`1` for the first task of the run on its node, `0` for the others there. A pod is a node of its own."""
PEERS = "FAIRWAY_PEERS"
"""JSON: `{"worker": ["127.0.0.1:20001", ...], "ps": [...]}`, one address per task, in order of index."""

CHECKPOINT_DIR = "FAIRWAY_CHECKPOINT_DIR"
"""Shared by all tasks and attempts of the run; see `fairway.runtime.checkpoint`."""
CHECKPOINT_EVERY = "FAIRWAY_CHECKPOINT_EVERY"
"""Seconds between checkpoints, as text; not set if the document has no interval."""
CHECKPOINT_KEEP = "FAIRWAY_CHECKPOINT_KEEP"
OUTPUT_PREFIX = "FAIRWAY_OUTPUT_"
"""`outputs: {model: mnist}` gives `FAIRWAY_OUTPUT_MODEL`, a folder."""
TENSORBOARD_DIR = "FAIRWAY_TENSORBOARD_DIR"
DATA_PREFIX = "FAIRWAY_DATA_"
"""`data: {train: ...}` gives `FAIRWAY_DATA_TRAIN`, a path or a URI."""

ATTEMPT_DIR = "FAIRWAY_ATTEMPT_DIR"
"""Folder of this attempt; contains the files below."""
SHARED_DIR = "FAIRWAY_SHARED_DIR"
"""Folder for all tasks and attempts of the run; contains the data shards."""
APART = "FAIRWAY_APART"
"""Set if the tasks of the run have no common folder: each task then has its own "shared" folder."""
ENDPOINT = "FAIRWAY_ENDPOINT"
"""Endpoint of the engine: a Unix socket path or a URL."""
TOKEN_FILE = "FAIRWAY_TOKEN_FILE"
UNBUFFERED = "PYTHONUNBUFFERED"
LINES = "FAIRWAY_LINES"
"""Set if Fairway set `PYTHONUNBUFFERED`: Python then buffers whole lines, see `fairway.runtime.startup`."""

JAX_SIGN = "OMPI_MCA_orte_hnp_uri"
"""Variable by which JAX detects that the variables of Open MPI describe its peers."""
NO_LAUNCHER = "4096.0;tcp://"
"""Prefix of `JAX_SIGN` if the engine set it, without Open MPI."""

REMOTE_HOSTS = "FAIRWAY_REMOTE_HOSTS"
"""For a task that starts ranks in other tasks: JSON with their hosts and ports: `{"mnist-7-worker-1.mnist-7...": 20001}`."""
REMOTE_KEY = "FAIRWAY_REMOTE_KEY"
"""Key with which it authenticates to them as part of the run; in hex."""

METRICS_FILE = "metrics-{local_rank}.jsonl"
"""Metrics file in the attempt's folder, appended by `report()`: one JSON object per line, `{"time": .., "step": .., "metrics":
{name: number}}`.

Values that JSON has no number for are the texts `NaN`, `Infinity` or `-Infinity`; `fairway.runtime.metrics.parse` reads a line. A
step is an integer of 64 bits, a time lies between 1970 and tomorrow, a name has 1 to 250 printable characters, a line at most 1
MiB. Anything beyond these limits is rejected and reported in the events of the run.
"""
STOP_FILE = "stop"
"""In the attempt's folder; created to request the task to stop soon (a stop condition, `fairway stop`)."""
LISTEN_FILE = "listens"
"""In the shared folder. A process that calls `should_stop()` or saves checkpoints holds a shared lock on it while it lives.

While it is locked, SIGTERM does not follow a stop request immediately.
"""
CHECKPOINT_FILE = "checkpoint-now"
"""In the shared folder; its modification time is that of the newest request to save."""

EXIT_REQUEUE = 75
"""Exit code of a process that saved its state and requests a restart; not a failure."""

LATEST = "latest"
"""In the checkpoint folder: a text file with the name of the newest complete checkpoint folder."""
MANIFEST = "manifest.json"
"""In each complete checkpoint folder. A folder without it is not a checkpoint."""
STEP_FOLDER = "step-{step:012d}"
