"""Estimators of scikit-learn by skl2onnx, and boosted trees by onnxmltools and by catboost itself."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

ESTIMATORS = {
    "linear": "linear_model.LinearRegression", "ridge": "linear_model.Ridge", "logistic": "linear_model.LogisticRegression", "sgd": "linear_model.SGDClassifier",
    "svc": "svm.SVC:probability=True", "svr": "svm.SVR", "linear-svc": "svm.LinearSVC", "forest": "ensemble.RandomForestClassifier:n_estimators=8",
    "forest-regression": "ensemble.RandomForestRegressor:n_estimators=8", "boosting": "ensemble.GradientBoostingClassifier:n_estimators=8", "histogram": "ensemble.HistGradientBoostingRegressor:max_iter=8",
    "tree": "tree.DecisionTreeClassifier", "neighbours": "neighbors.KNeighborsClassifier", "neighbours-regression": "neighbors.KNeighborsRegressor", "bayes": "naive_bayes.GaussianNB", "perceptron": "neural_network.MLPClassifier:max_iter=20",
    "perceptron-regression": "neural_network.MLPRegressor:max_iter=20", "kmeans": "cluster.KMeans:n_clusters=3", "gaussian": "gaussian_process.GaussianProcessRegressor", "discriminant": "discriminant_analysis.LinearDiscriminantAnalysis",
    "scaler": "preprocessing.StandardScaler", "minmax": "preprocessing.MinMaxScaler", "polynomial": "preprocessing.PolynomialFeatures", "pca": "decomposition.PCA:n_components=3", "mixture": "mixture.GaussianMixture:n_components=2", "isolation": "ensemble.IsolationForest:n_estimators=8",
    "ada": "ensemble.AdaBoostClassifier:n_estimators=5", "bagging": "ensemble.BaggingRegressor:n_estimators=5", "quantiles": "preprocessing.KBinsDiscretizer:n_bins=3,encode=ordinal", "normalizer": "preprocessing.Normalizer",
}  # fmt: skip


def _data() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((120, 6)).astype(np.float32)
    return x, (x[:, 0] + x[:, 1] > 0).astype(np.int64)


def _fitted(kind: str) -> Any:
    import importlib

    name, _, given = ESTIMATORS[kind].partition(":")
    module, _, what = name.partition(".")
    settings = {
        k: {"True": True}.get(v, v if not v.isdigit() else int(v))
        for k, v in (s.split("=") for s in given.split(",") if s)
    }
    x, y = _data()
    return getattr(importlib.import_module(f"sklearn.{module}"), what)(**settings).fit(x, y)


def _sklearn(kind: str, path: Path) -> Mapping[str, Any]:
    import skl2onnx

    x, _ = _data()
    model = skl2onnx.to_onnx(
        _fitted(kind),
        x[:1],
        target_opset={"": 17, "ai.onnx.ml": 3},
        options={"zipmap": False} if hasattr(_fitted(kind), "predict_proba") and kind != "mixture" else None,
    )
    path.write_bytes(model.SerializeToString())
    return {"X": x[:5]}


def _pipeline(path: Path) -> Mapping[str, Any]:
    import skl2onnx
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures, StandardScaler

    x, y = _data()
    model = make_pipeline(StandardScaler(), PolynomialFeatures(), LogisticRegression()).fit(x, y)
    path.write_bytes(skl2onnx.to_onnx(model, x[:1]).SerializeToString())
    return {"X": x[:5]}


def _trees(kind: str, path: Path) -> Mapping[str, Any]:
    x, y = _data()
    if kind.startswith("catboost"):
        import catboost

        made = (catboost.CatBoostClassifier if kind == "catboost" else catboost.CatBoostRegressor)(
            iterations=8, depth=3, verbose=False, allow_writing_files=False
        )
        made.fit(x, y).save_model(str(path), format="onnx")
        return {"features": x[:5]}
    import onnxmltools
    from onnxmltools.convert.common.data_types import FloatTensorType

    types = [("X", FloatTensorType([None, 6]))]
    if kind.startswith("lightgbm"):
        import lightgbm

        model = (lightgbm.LGBMClassifier if kind == "lightgbm" else lightgbm.LGBMRegressor)(
            n_estimators=8, verbose=-1
        ).fit(x, y)
        found = onnxmltools.convert_lightgbm(model, initial_types=types)
    else:
        import xgboost

        model = (xgboost.XGBClassifier if kind == "xgboost" else xgboost.XGBRegressor)(n_estimators=8).fit(x, y)
        found = onnxmltools.convert_xgboost(model, initial_types=types)
    path.write_bytes(found.SerializeToString())
    return {"X": x[:5]}


RECIPES = {**{kind: partial(_sklearn, kind) for kind in ESTIMATORS}, "pipeline": _pipeline}
TREES = {kind: partial(_trees, kind) for kind in ("lightgbm", "lightgbm-regression", "xgboost", "xgboost-regression")}
CATBOOST = {kind: partial(_trees, kind) for kind in ("catboost", "catboost-regression")}
