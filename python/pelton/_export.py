"""Linear models as pipelines of scikit-learn's own classes, which predict the same without Pelton.

Coefficients are for unscaled features, so a pipeline needs no scaler. Categories are compared as the text that NumPy makes
of cells, and every text that Pelton takes for one value has the coefficient of that value.
"""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression, PoissonRegressor
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder
from sklearn.svm import LinearSVC

# Texts for missing values; NumPy makes some of them from None, NaN and pandas.NA.
_MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "<NA>", "#N/A", "#NA", "-NaN", "-nan")
_TRUTH = {"true": 1.0, "false": 0.0}
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
# Codes of columns without an equivalent in scikit-learn.
_OTHERS = {"hash": "a category of hashed values", "text": "text of hashed words", "date": "a date"}


def pipeline_of(model: Any, means: list[float] | None = None, threshold: float | None = None) -> Pipeline:
    """The pipeline of a fitted estimator, with what missing numbers become, and the score that decides between two classes."""
    fields = json.loads(getattr(model, "_schema", None) or "{}")
    if not fields and hasattr(model, "feature_names_in_"):
        fields = {"fields": [{"name": name} for name in model.feature_names_in_]}
    steps: list[tuple[str, Any]] = []
    features = None
    # Elements of arrays are not columns of a data frame.
    if fields and not any(field.get("dims") for field in fields["fields"]):
        names = [field["name"] for field in fields["fields"]]
        columns, features = _columns(names, fields.get("codes"), means)
        steps.append(("columns", columns))
    elif means is not None:
        steps.append(("missing", SimpleImputer().fit([means])))
    predictor = _predictor(model, features)
    if threshold is not None:
        frozen = FrozenEstimator(predictor)
        predictor = FixedThresholdClassifier(frozen, threshold=threshold, response_method="decision_function")
        predictor.fit(np.zeros((2, 1)), model.classes_)
    return Pipeline([*steps, ("model", predictor)])


def _columns(names: list[str], codes: Any, means: list[float] | None) -> tuple[ColumnTransformer, list[int]]:
    """What makes features of the columns, and which of the model's features each of these is."""
    import pandas

    # Coded numbers are read as 32-bit floats, others as 64-bit.
    number = FunctionTransformer(np.asarray, kw_args={"dtype": "float32" if codes else "float64"})
    text = FunctionTransformer(np.asarray, kw_args={"dtype": "str"})
    fills: list[Any] = means or [None] * len(names)
    codes = codes or [{"number": {"missing": fill, "flag": False}} for fill in fills]
    groups, rows, values = _groups(names, codes)
    steps = {
        "numbers": number,
        "filled": make_pipeline(SimpleImputer(add_indicator=bool(groups["flags"])), number),
        "categories": make_pipeline(text, OneHotEncoder(categories=values, handle_unknown="ignore")),
    }
    columns = ColumnTransformer([(group, step, list(groups[group])) for group, step in steps.items() if groups[group]])
    features = [feature for group in groups.values() for own in group.values() for feature in own]
    return columns.fit(pandas.DataFrame(rows)), features


def _groups(names: list[str], codes: Any) -> tuple[dict[str, dict[str, list[int]]], dict[str, list[Any]], list[list[str]]]:
    """The columns that are treated alike, in the order of their features, with the model's feature that each of theirs is;
    two rows to fit to, the second of which lacks what has a feature where it is missing; and the texts of the categories.
    """
    groups: dict[str, dict[str, list[int]]] = {"numbers": {}, "filled": {}, "flags": {}, "categories": {}}
    rows: dict[str, list[Any]] = {}
    texts, at = [], 0
    for name, code in zip(names, codes):
        [(kind, about)] = code.items()
        if kind == "category":
            spellings = _spellings(about["values"])
            texts.append(list(spellings))
            groups["categories"][name] = [at + value for value in spellings.values()]
            rows[name] = 2 * texts[-1][:1]
            at += len(about["values"])
        elif kind == "number":
            fill, has_flag = about["missing"], about["flag"]
            groups["numbers" if fill is None else "filled"][name] = [at]
            rows[name] = [fill or 0.0, np.nan if has_flag else fill or 0.0]
            if has_flag:
                groups["flags"][name] = [at + 1]
            at += 1 + has_flag
        else:
            raise ValueError(
                f"column {name!r} is {_OTHERS.get(kind, kind)}, which scikit-learn has no equal of; train a model without it, "
                f"with columns={{{name!r}: 'ignore'}}"
            )
    return groups, rows, texts


def _spellings(values: list[str]) -> dict[str, int]:
    """Texts of cells that are one of the values of a category, and which: also those that pandas reads after a blank."""
    found = {value: at for at, value in enumerate(values)}
    for at, value in enumerate(values):
        for text in (" " + value, *(_MISSING if value == "" else _same(value))):
            found.setdefault(text, at)
    return found


def _same(text: str) -> list[str]:
    """How NumPy writes the number or the moment that a text is, if it is one."""
    if _MOMENT.fullmatch(text):
        return [text.replace(" ", "T") + fraction for fraction in ("", ".000000", ".000000000")]
    number = float(text) if _NUMBER.fullmatch(text) else _TRUTH.get(text.lower())
    if number is None or not np.isfinite(number):
        return []
    words = [word for word, value in _TRUTH.items() if value == number]
    whole = [str(int(number))] if number == int(number) else []
    return [str(number), *whole, *words, *(word.capitalize() for word in words)]


def _predictor(model: Any, features: list[int] | None) -> Any:
    """A predictor of scikit-learn with the coefficients of a model, of these features where it has others."""
    coefficients = model.coef_ if features is None else model.coef_[..., features]
    if not hasattr(model, "classes_"):
        found = PoissonRegressor() if model.loss == "poisson" else LinearRegression()
        return _with(found, [0.0, 1.0], coefficients, model.intercept_)
    if model.loss not in ("multinomial", "logistic"):
        return _with(LinearSVC(), model.classes_, coefficients, model.intercept_)
    if model.loss == "multinomial" or len(model.classes_) == 2:
        return _with(LogisticRegression(), model.classes_, coefficients, model.intercept_)
    each = OneVsRestClassifier(LogisticRegression()).fit(np.zeros((len(model.classes_), 1)), model.classes_)
    vectors = zip(coefficients[:, None], model.intercept_[:, None])
    each.estimators_ = [_with(LogisticRegression(), [0, 1], *vector) for vector in vectors]
    each.n_features_in_ = coefficients.shape[-1]
    return each


def _with(found: Any, targets: Any, coefficients: np.ndarray, intercepts: Any) -> Any:
    # A fit to these targets sets the other attributes that a predictor needs.
    found.fit(np.zeros((len(targets), 1)), targets)
    found.coef_, found.intercept_, found.n_features_in_ = coefficients, intercepts, coefficients.shape[-1]
    return found
