"""XGBoost over workers: the tracker runs beside worker 0; the `DMLC_*` variables give its address, as Kubeflow sets them."""

import os

import numpy
import xgboost
from xgboost import collective
from xgboost.tracker import RabitTracker

place, world = int(os.environ["DMLC_TASK_ID"]), int(os.environ["DMLC_NUM_WORKER"])
where, port = os.environ["DMLC_TRACKER_URI"], int(os.environ["DMLC_TRACKER_PORT"])
if place == 0:
    tracker = RabitTracker(n_workers=world, host_ip=where, port=port, sortby="task")
    tracker.start()
given = {"dmlc_communicator": "rabit", "dmlc_tracker_uri": where, "dmlc_tracker_port": port, "dmlc_task_id": str(place)}
with collective.CommunicatorContext(**given):
    inputs = numpy.linspace(-1, 1, 200).reshape(200, 1)[collective.get_rank() :: world]
    data = xgboost.DMatrix(inputs, 3 * inputs[:, 0] + 0.5)
    model = xgboost.train({"max_depth": 2, "nthread": 1}, data, num_boost_round=5, evals=[(data, "train")])
    score = float(model.predict(xgboost.DMatrix(numpy.array([[0.3]])))[0])
    print(f"rank {collective.get_rank()} of {collective.get_world_size()} has {score:.4f}", flush=True)
