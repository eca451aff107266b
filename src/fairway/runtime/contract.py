"""The names that an engine and a task agree on: environment variables and files.

An engine sets the variables and makes the folders; `fairway.runtime` reads them inside the task.
This is the whole interface between the two, so it is written down once, here.
"""

JOB = "FAIRWAY_JOB"
"""The run's name, for example `mnist-7`."""
NAMESPACE = "FAIRWAY_NAMESPACE"
TASK = "FAIRWAY_TASK"
"""`worker-0`: role and index."""
ROLE = "FAIRWAY_ROLE"
INDEX = "FAIRWAY_INDEX"
ATTEMPT = "FAIRWAY_ATTEMPT"
"""How often this task was started before; 0 the first time."""
RANK = "FAIRWAY_RANK"
"""This process among all processes that compute together (workers and chief; not ps, evaluator or launcher)."""
LOCAL_RANK = "FAIRWAY_LOCAL_RANK"
"""This process among those of its task. `LOCAL_RANK` counts over the tasks of a node, where that is safe for devices."""
LOCAL_WORLD_SIZE = "FAIRWAY_LOCAL_WORLD_SIZE"
WORLD_SIZE = "FAIRWAY_WORLD_SIZE"
FIRST_ON_NODE = "FAIRWAY_FIRST_ON_NODE"
"""`1` for the first task of the run on its node, `0` for the others there. A pod is a node of its own."""
PEERS = "FAIRWAY_PEERS"
"""JSON: `{"worker": ["127.0.0.1:20001", ...], "ps": [...]}`, one address a task, in order of index."""

CHECKPOINT_DIR = "FAIRWAY_CHECKPOINT_DIR"
"""Shared by all tasks and attempts of the run; see `fairway.runtime.checkpoint`."""
CHECKPOINT_EVERY = "FAIRWAY_CHECKPOINT_EVERY"
"""Seconds between checkpoints, as text; absent when the document says nothing."""
CHECKPOINT_KEEP = "FAIRWAY_CHECKPOINT_KEEP"
OUTPUT_PREFIX = "FAIRWAY_OUTPUT_"
"""`outputs: {model: mnist}` gives `FAIRWAY_OUTPUT_MODEL`, a folder."""
TENSORBOARD_DIR = "FAIRWAY_TENSORBOARD_DIR"
DATA_PREFIX = "FAIRWAY_DATA_"
"""`data: {train: ...}` gives `FAIRWAY_DATA_TRAIN`, a path or a URI."""

ATTEMPT_DIR = "FAIRWAY_ATTEMPT_DIR"
"""This attempt's own folder; holds the files below."""
SHARED_DIR = "FAIRWAY_SHARED_DIR"
"""One folder for all tasks and attempts of the run (data shards live here)."""
APART = "FAIRWAY_APART"
"""Set where the tasks of the run share no folder: what is called shared is each task's own."""
ENDPOINT = "FAIRWAY_ENDPOINT"
"""Where the engine listens, for what must go to it; a Unix socket path or a URL."""
TOKEN_FILE = "FAIRWAY_TOKEN_FILE"
UNBUFFERED = "PYTHONUNBUFFERED"
LINES = "FAIRWAY_LINES"
"""Set where Fairway set `PYTHONUNBUFFERED`: Python then buffers whole lines, see `fairway.runtime.startup`."""

JAX_SIGN = "OMPI_MCA_orte_hnp_uri"
"""By this variable JAX finds that Open MPI's others tell of its peers."""
NO_LAUNCHER = "4096.0;tcp://"
"""How it begins where the engine set it, and no Open MPI."""

REMOTE_HOSTS = "FAIRWAY_REMOTE_HOSTS"
"""For a task that starts ranks in others: JSON, where each of them listens: `{"mnist-7-worker-1.mnist-7...": 20001}`."""
REMOTE_KEY = "FAIRWAY_REMOTE_KEY"
"""What it proves to them that it belongs to the run with; in hex."""

METRICS_FILE = "metrics-{local_rank}.jsonl"
"""In the attempt's folder, appended by `report()`: one JSON object a line, `{"time": .., "step": .., "metrics": {name: number}}`.
What JSON has no number for is the text `NaN`, `Infinity` or `-Infinity`; `fairway.runtime.metrics.parse` reads a line.
A step is an integer of 64 bits, a time lies between 1970 and tomorrow, a name has 1 to 250 printable characters, a line at most
1 MiB. What is outside of that is refused and named in the events of the run."""
STOP_FILE = "stop"
"""In the attempt's folder; it appears when the task is asked to end soon (a stop condition, `fairway stop`)."""
LISTEN_FILE = "listens"
"""In the shared folder; a process that asks `should_stop()` or saves checkpoints holds a shared lock on it while it lives.
While it is locked, a request to stop is not followed by SIGTERM at once."""
CHECKPOINT_FILE = "checkpoint-now"
"""In the shared folder; its modification time is the newest request to save."""

EXIT_REQUEUE = 75
"""A process that saved its state and wants to be started again exits with this; it is no failure."""

LATEST = "latest"
"""In the checkpoint folder: a text file with the name of the newest finished checkpoint folder."""
MANIFEST = "manifest.json"
"""In each finished checkpoint folder. A folder without it is not a checkpoint."""
STEP_FOLDER = "step-{step:012d}"
