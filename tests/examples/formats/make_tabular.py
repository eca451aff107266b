"""Small trained models of scikit-learn, XGBoost, LightGBM and CatBoost, each with inputs and the predictions of the library."""

import pickle

import catboost
import joblib
import lightgbm
import numpy as np
import pandas
import skops.io
import xgboost
from kept import keep, made, spec
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((200, 4))
Y = (X[:, 0] + X[:, 1] > 0).astype(int) + (X[:, 2] > 1)
NAMES = np.array(["low", "middle", "high"])
COLOURS = np.array(["red", "green", "blue"])[RANDOM.integers(0, 3, 200)]
ASKED = X[:8]


def both(model, rows):
    return {"predict": model.predict(rows), "predict_proba": model.predict_proba(rows)}


def scikit():
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, NAMES[Y])
    skops.io.dump(model, made("skops-pipeline") / "model.skops")
    keep("skops-pipeline", {"input": ASKED}, lambda given: both(model, given["input"]))
    forest = RandomForestClassifier(5, random_state=0).fit(X, Y)
    skops.io.dump(forest, made("skops-forest") / "model.skops")
    keep("skops-forest", {"input": ASKED}, lambda given: both(forest, given["input"]))
    texts = ["the sea is blue", "a ship sails", "the land is far", "no ship", "yes the sea", "land", "blue sea", "far"]
    words = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(texts, [0, 1, 0, 1, 0, 0, 0, 1])
    skops.io.dump(words, made("skops-text") / "model.skops")
    keep("skops-text", {"input": texts}, lambda given: both(words, given["input"]))
    ridge = Ridge().fit(X, X[:, :2])
    (made("pickle-two-values") / "model.pkl").write_bytes(pickle.dumps(ridge))
    keep("pickle-two-values", {"input": ASKED}, lambda given: {"predict": ridge.predict(given["input"])})
    groups = KMeans(3, n_init=1, random_state=0).fit(X)
    joblib.dump(groups, made("joblib-groups") / "model.joblib", compress=3)
    keep("joblib-groups", {"input": ASKED}, lambda given: {"predict": groups.predict(given["input"])})
    parts = PCA(2).fit(X)
    joblib.dump(parts, made("joblib-transform") / "model.joblib")
    keep("joblib-transform", {"input": ASKED}, lambda given: {"transform": parts.transform(given["input"])})
    frames()


def frames():
    frame = pandas.DataFrame({"size": X[:, 0], "colour": COLOURS})
    columns = ColumnTransformer([("one", OneHotEncoder(), ["colour"]), ("same", "passthrough", ["size"])])
    model = make_pipeline(columns, LogisticRegression()).fit(frame, Y)
    signature = {"inputs": [spec("size", "FP64", [-1]), spec("colour", "BYTES", [-1])]}
    (made("pickle-columns", signature=signature) / "model.pkl").write_bytes(pickle.dumps(model))
    asked = {"size": X[:8, 0], "colour": COLOURS[:8]}
    keep("pickle-columns", asked, lambda given: both(model, pandas.DataFrame(given)))


def trees():
    x = ASKED.astype("f4")
    model = xgboost.XGBClassifier(n_estimators=5).fit(X, Y)
    model.save_model(made("xgboost-json") / "model.json")
    keep("xgboost-json", {"input": x}, lambda given: both(model, given["input"]))
    booster = xgboost.train({"objective": "multi:softprob", "num_class": 3}, xgboost.DMatrix(X, Y, feature_names=list("abcd")), 5)
    booster.save_model(made("xgboost-ubj") / "model.ubj")
    keep(
        "xgboost-ubj",
        {"input": x},
        lambda given: {"predict": booster.predict(xgboost.DMatrix(given["input"], feature_names=list("abcd")))},
    )
    boosted = lightgbm.train({"objective": "multiclass", "num_class": 3, "verbose": -1}, lightgbm.Dataset(X, Y), 5)
    boosted.save_model(made("lightgbm-classes") / "model.txt")
    keep("lightgbm-classes", {"input": ASKED}, lambda given: {"predict": boosted.predict(given["input"])})
    values = lightgbm.LGBMRegressor(n_estimators=5, verbose=-1).fit(X, X[:, 0])
    values.booster_.save_model(made("lightgbm-values") / "model.lgb")
    keep("lightgbm-values", {"input": ASKED}, lambda given: {"predict": values.predict(given["input"])})
    quiet = {"iterations": 5, "verbose": False, "allow_writing_files": False, "thread_count": 1}
    cats = catboost.CatBoostClassifier(**quiet).fit(X, NAMES[Y])
    cats.save_model(made("catboost-classes") / "model.cbm")
    keep(
        "catboost-classes",
        {"input": x},
        lambda given: {"predict": cats.predict(given["input"])[:, 0], "predict_proba": cats.predict_proba(given["input"])},
    )
    frame = pandas.DataFrame({"size": X[:, 0].astype("f4"), "colour": COLOURS})
    mixed = catboost.CatBoostRegressor(**quiet, cat_features=["colour"]).fit(frame, X[:, 1])
    mixed.save_model(made("catboost-columns") / "model.cbm")
    asked = {"size": X[:8, 0].astype("f4"), "colour": COLOURS[:8]}
    keep("catboost-columns", asked, lambda given: {"predict": mixed.predict(pandas.DataFrame(given))})


scikit()
trees()
