"""Linear classifiers and regressors with scikit-learn's interface, over arrays and over files larger than memory.

>>> from pelton import LinearClassifier
>>> model = LinearClassifier(C=0.1, random_state=0).fit(X, y)           # arrays and CSR matrices
>>> model = LinearClassifier(memory="2GiB").fit("clicks-*.csv", label="clicked")
>>> model.gap_                                       # at most so far from the optimum, proven
3.1e-05

They minimise ½‖w‖² + C Σ loss(y·(w·x + b)), or of a regression ½‖w‖² + C Σ loss(y − (w·x + b)); ``l1_ratio`` puts ‖w‖₁
in place of a share of ½‖w‖². The intercept b is free, as in scikit-learn, or a weight like the others, as in LIBLINEAR.
With more than two classes, each is trained against the rest, but those of the multinomial loss,
log Σ_k exp(w_k·x + b_k) − (w_y·x + b_y), have one objective together.
"""

from __future__ import annotations

import json
import numbers
import os
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse
from scipy.special import log_expit, log_softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state, column_or_1d, compute_class_weight
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from . import _pelton
from ._array_rows import bytes_of, hand_over
from ._checks import parse_bytes
from ._classes import warn_of
from ._frames import are_numbers, table_of, written
from ._load import load
from ._names import file_name
from ._world import ranks_here

if TYPE_CHECKING:
    import pandas as pd
    from sklearn.pipeline import Pipeline
    from typing_extensions import Self

__all__ = ["LinearClassifier", "LinearRegressor", "LogisticRegression", "to_sklearn"]

# Rows examined to decide whether float32 is precise enough for a column; it is not if the mean is more than `_COARSE`
# standard deviations from 0. From `_MOST_EXACT` on, float32 skips whole numbers.
_LOOKED_AT = 4096
_COARSE = 32768.0
_MOST_EXACT = 2.0**24
# For targets: from here on, float32 rounds by more than a 100 000th of their standard deviation.
_FAR = 256.0
# Losses of a regression, and whether they have an epsilon.
_REGRESSIONS = {
    "squared": False,
    "epsilon-insensitive": True,
    "squared-epsilon-insensitive": True,
    "huber": True,
    "poisson": False,
}
# Classification losses that give probabilities.
_PROBABLE = ("multinomial", "logistic")
# Threads that load files, as in the command.
_LOADING_THREADS = 3


class _LinearModel(BaseEstimator):  # type: ignore[misc]
    """What the estimators have in common."""

    max_epochs: int | None
    threads: int | None
    random_state: int | np.random.RandomState | None

    def _loss(self) -> str:
        raise NotImplementedError

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, **data: Any) -> Self:
        """Trains on an array, CSR matrix or data frame ``X`` with classes or targets ``y``, or on files.

        A data frame (pandas, polars, pyarrow) may have columns of text, categories and dates, which become features as in
        ``pelton train linear``; ``columns={"age": "category"}`` says what a column is, and
        ``{"a:b": "cross"}`` crosses two; ``missing`` is ``"zero"``,
        ``"mean"`` or ``"flag"``. Both apply to files, too.

        ``sample_weight`` has a factor on ``C`` for each row.

        Files are a path, a pattern or a list of them, and keywords those of ``pelton.load``, such as ``label``, the column
        of the classes or targets. They are read within ``memory``, however large they are.
        """
        if _names_files(X):
            return self._fit_files(X, y, sample_weight, data)
        if (table := table_of(X, is_wanted=bool(data))) is not None:
            return self._fit_table(table, y, sample_weight, data)
        if data:
            raise TypeError(f"`{next(iter(data))}` applies to files and data frames, and X is an array; leave it out")
        for name in ("_schema", "_feature_names"):
            self.__dict__.pop(name, None)
        numeric = isinstance(self, RegressorMixin)
        before = getattr(self, "n_features_in_", None)
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32], y_numeric=numeric)
        if self._begins() and before != X.shape[1]:
            raise ValueError(f"warm_start=True: the model has {before} features, and X {X.shape[1]}; fit a new estimator")
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X)
        classes, labels, config = self._labels(y, sample_weight)
        count, features = X.shape
        rows = _pelton.LinearRows(count, features, X.nnz if sparse.issparse(X) else None)
        centre = self._centre(X)
        hand_over(rows, X, labels, centre)
        centre = None if centre is None else centre.tolist()
        weights = None if sample_weight is None else _weights(sample_weight)
        config_text, target_centre = json.dumps(config), getattr(self, "_target_centre", 0.0)
        found = rows.fit(config_text, len(classes), self._threads(), centre, target_centre, weights, self._begins(classes))
        self._take(found, classes)
        return self

    def _begins(self, classes: Any = ()) -> str | None:
        """What training begins from: nothing yet where that is empty, and never where there is none."""
        if not self.warm_start:
            return None
        start = getattr(self, "_start", None) or ""
        if start and len(classes) and not np.array_equal(classes, self.classes_):
            raise ValueError("warm_start=True: y has other classes than the model; fit a new estimator")
        return start

    def _fit_table(self, table: Any, y: Any, sample_weight: Any, data: dict[str, Any]) -> Self:
        if others := set(data) - {"columns", "missing"}:
            raise TypeError(f"`{min(others)}` applies to files, and X is a data frame; leave it out or give files")
        if y is None:
            raise ValueError("y is missing; give the class or target of each row of X")
        y = column_or_1d(y, warn=True)
        if len(y) != table.num_rows:
            raise ValueError(f"y has {len(y)} entries, and X {table.num_rows} rows; give one to each row")
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, np.empty((len(y), 1)))
        classes, labels, config = self._labels(y, sample_weight)
        if "missing" in data and are_numbers(table):
            # The model keeps replacements for missing numbers in the codes of its columns, so `predict` fills them in, too.
            data = {**data, "columns": {"*": "number", **(data.get("columns") or {})}}
        label = "y"
        while label in table.column_names:
            label += "_"
        # Targets far from 0 are centred when files are read.
        column = labels.astype(np.int64) if len(classes) else y.astype(np.float64)
        self._begins(classes)
        with written(table.append_column(label, [column])) as file:
            self._fit_files(file, None, sample_weight, {**data, "label": label}, config)
        if len(classes):
            self.classes_: np.ndarray = classes[self.classes_]
        for found in (self._inference or {}).get("coefficients", []):
            if "class" in found:
                found["class"] = _plain(classes[int(found["class"])])
        self.feature_names_in_ = np.array(table.column_names, dtype=object)
        self.n_features_in_ = len(table.column_names)
        return self

    def _fit_files(
        self, X: Any, y: Any, sample_weight: Any, data: dict[str, Any], config: dict[str, Any] | None = None
    ) -> Self:
        if y is not None:
            raise TypeError("y is only for arrays; for files, name its column with `label`")
        frame = None if config is None else X
        config = {
            **(self._config_of_files() if config is None else config),
            "data": _data_of(X, data),
            "threads": self.threads or _LOADING_THREADS,
            "scratch_dir": None if self.scratch_dir is None else file_name(self.scratch_dir),
        }
        weights = None
        if _names_files(sample_weight):
            config["sample_weights"] = file_name(sample_weight)
        elif sample_weight is not None:
            weights = _weights(column_or_1d(sample_weight))
        found = _pelton.fit_linear(json.dumps(config), self._threads(), weights, self._begins())
        self._take(found, None, frame)
        self._feature_names, self._schema = found[-2:]
        columns = self._feature_names
        self.n_features_in_ = self.coef_.shape[-1]
        if self._is_coded():
            columns = [field["name"] for field in json.loads(self._schema or "{}")["fields"]]
            self.n_features_in_ = len(columns)
        if columns:
            # With these scikit-learn checks the columns of data frames.
            self.feature_names_in_ = np.array(columns, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        return self

    def _is_coded(self) -> bool:
        schema: str | None = getattr(self, "_schema", None)
        return schema is not None and "codes" in json.loads(schema)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """A name for each coefficient: that of its column, with the value where the column is a category."""
        check_is_fitted(self)
        count = self.coef_.shape[-1]
        names = getattr(self, "_feature_names", None) or [str(name) for name in getattr(self, "feature_names_in_", [])]
        if not names:
            names = [f"x{at}" for at in range(count)]
        # Hashed columns share the last features.
        return np.array(names + [f"hash{at}" for at in range(count - len(names))], dtype=object)

    def summary_frame(self) -> pd.DataFrame:
        """The coefficients of a model without a penalty, ``C=np.inf``, as a pandas data frame.

        A row has the estimate, its standard error, the z statistic (t of least squares), its p value, and the ends of the 95 %
        interval: of two classes for ``classes_[1]``, of more by ``class`` and name. Coefficients of combinations of the
        features before them are 0, and have no standard error.
        """
        import pandas as pd

        check_is_fitted(self)
        if self._inference is None:
            raise ValueError(f"standard errors are of models without a penalty, and C={self.C!r}; give C=np.inf")
        rows = [dict(row) for row in self._inference["coefficients"]]
        names = self.get_feature_names_out()
        for row in rows:
            row.pop("is_unbounded", None)
            if not hasattr(self, "_feature_names") and row["name"] != "intercept":
                # Columns of an array are numbered.
                row["name"] = names[int(row["name"].split()[-1])]
        frame = pd.DataFrame(rows).rename(columns={"statistic": self._inference["statistic"]})
        return frame.set_index([name for name in ("class", "name") if name in frame]).astype(float)

    def _rows(self, X: Any) -> Any:
        """The features of an array, a data frame or files."""
        table = table_of(X, is_wanted=self._is_coded())
        if table is not None and self._is_coded():
            with written(table) as file:
                return self._rows_of_files(file, {})
        if _names_files(X):
            return self._rows_of_files(X, {})
        if self._is_coded():
            raise ValueError(
                f"the model was trained on the columns {', '.join(map(str, self.feature_names_in_))}, which are not all "
                "numbers; give a data frame or files that have them"
            )
        return validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)

    def _rows_of_files(self, X: Any, data: dict[str, Any]) -> sparse.csr_matrix:
        features = self.coef_.shape[-1]
        schema = getattr(self, "_schema", None)
        found = _pelton.linear_rows(json.dumps(_data_of(X, data)), features, schema)
        ends, places, values = (np.asarray(array) for array in found)
        return sparse.csr_matrix((values, places, ends), shape=(len(ends) - 1, features))

    def _centre(self, X: Any) -> np.ndarray | None:
        """What is subtracted from each column before conversion to the solver's float32: about the mean, for columns
        that would lose too much precision. Without the standard scale, which includes it, such columns are refused.
        """
        if sparse.issparse(X) or X.dtype != np.float64 or not len(X):
            return None
        looked_at = X[:: -(-len(X) // _LOOKED_AT)]
        with np.errstate(all="ignore"):
            about = looked_at - looked_at[0]
            mean, deviation = looked_at[0] + about.mean(axis=0), about.std(axis=0)
        is_coarse = np.isfinite(mean) & np.where(
            deviation > 0, np.abs(mean) > _COARSE * deviation, np.abs(mean) >= _MOST_EXACT
        )
        if self.scale != "standard":
            for column in np.flatnonzero(is_coarse & (deviation > 0)):
                names = getattr(self, "feature_names_in_", None)
                raise ValueError(
                    f"column {column if names is None else repr(names[column])} has values about {mean[column]:.9g} that "
                    f"differ by about {deviation[column]:.1g}, too little for the solver's 32-bit floating point; "
                    'give scale="standard", which centres columns in 64 bits, or subtract a constant'
                )
            return None
        return np.where(is_coarse, mean, 0.0) if is_coarse.any() else None

    def _config(self) -> dict[str, Any]:
        is_penalised = self.C != np.inf
        if is_penalised:
            _check_number("C", self.C, 0.0, np.inf)
        elif self.l1_ratio:
            raise ValueError(f"C=inf leaves the penalty out, of which l1_ratio={self.l1_ratio!r} is a share; give only one of them")
        _check_number("tol", self.tol, 0.0, 1.0)
        if not (isinstance(self.l1_ratio, numbers.Real) and 0.0 <= float(self.l1_ratio) <= 1.0):
            raise ValueError(f"l1_ratio={self.l1_ratio!r} is not a share; give 0 for ½‖w‖², 1 for ‖w‖₁, or a number between")
        _check_number("intercept_scaling", self.intercept_scaling, 0.0, np.inf)
        if self.max_epochs is not None and not (isinstance(self.max_epochs, numbers.Integral) and self.max_epochs >= 1):
            raise ValueError(f"max_epochs={self.max_epochs!r} is not a number of epochs; give 1 or more, or None")
        if self.warm_start and self._loss().startswith(("hinge", "epsilon")):
            raise ValueError(f"warm_start=True needs a smooth loss, and loss={self.loss!r} has a kink; leave it out")
        config = {
            "loss": self._loss(),
            "penalty": f"elastic-net:{float(self.l1_ratio)}" if is_penalised else "none",
            "cost": float(self.C) if is_penalised else 1.0,
            "bias": float(self.intercept_scaling) if self.fit_intercept else None,
            "free_bias": bool(self.fit_intercept and not self.regularise_intercept),
            "solver": self.solver,
            "scale": self.scale,
            "memory_bytes": _pelton.memory_budget(1 << 30, ranks_here()) if self.memory is None else parse_bytes(self.memory),
            "seed": self._seed(),
            "target": float(self.tol),
        }
        return config if self.max_epochs is None else {**config, "epochs": int(self.max_epochs)}

    def _seed(self) -> int:
        # A number is passed as the command's `--seed`.
        if isinstance(self.random_state, numbers.Integral) and self.random_state >= 0:
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))

    def _threads(self) -> int:
        if self.threads is None:
            return len(os.sched_getaffinity(0))
        if not (isinstance(self.threads, numbers.Integral) and self.threads >= 1):
            raise ValueError(f"threads={self.threads!r} is not a number of threads; give 1 or more, or None for all processors")
        return int(self.threads)

    def _take(self, found: _pelton.Fitted, classes: np.ndarray | None, frame: str | None = None) -> None:
        """Takes over the solver's result; ``classes`` are those it used, unless files name theirs. Notes call the file
        ``frame`` the data frame."""
        labels, names, vectors, (self.primal_, self.dual_, self.gap_), self.n_iter_, advice, notes, inference, self._start, *_ = found
        self._inference: dict[str, Any] | None = None if inference is None else json.loads(inference)
        warn_of([note.replace(frame, "the data frame") for note in notes] if frame else notes)
        coefficients = np.stack([np.asarray(vector) for vector, _ in vectors])
        self._use(coefficients, np.array([intercept for _, intercept in vectors]), classes, labels, names)
        for coefficient in (self._inference or {}).get("coefficients", []):
            if classes is not None and len(classes) and "class" in coefficient:
                coefficient["class"] = _plain(classes[int(coefficient["class"])])
        if not self.gap_ <= self.tol:
            warnings.warn(
                f"after {self.n_iter_} epochs the objective is certified to be within {self.gap_:.1e} of the optimum, which is "
                f"above tol={self.tol:g}: {self._remedy(advice)}",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _remedy(self, advice: str | None) -> str:
        if advice:
            return advice
        if self.solver == "coordinate-descent" and self.coef_.shape[-1] <= 1000:
            return 'leave solver at "auto", which takes another where coordinate descent is slow'
        if self.n_iter_ < (self.max_epochs or 30):
            return "weights of 32 bits come no nearer; scale the features, or choose a smaller C or a larger tol"
        return "raise max_epochs, or choose a smaller C or a larger tol"

    def _values(self, X: Any) -> Any:
        """w·x + b of each row."""
        check_is_fitted(self)
        return safe_sparse_dot(self._rows(X), self.coef_.T, dense_output=True) + self.intercept_

    def to_sklearn(self) -> Pipeline:
        """A pipeline of scikit-learn's own classes that predicts the same: :func:`to_sklearn`."""
        check_is_fitted(self)
        return to_sklearn(self)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _has_probabilities(model: Any) -> bool:
    return model.loss in _PROBABLE


class _Classifier(ClassifierMixin, _LinearModel):  # type: ignore[misc]
    """What the classifiers have in common."""

    loss: str

    def __init__(
        self,
        C: float = 1.0,
        *,
        l1_ratio: float = 0.0,
        fit_intercept: bool = True,
        regularise_intercept: bool = False,
        intercept_scaling: float = 1.0,
        class_weight: Mapping[Any, float] | str | None = None,
        tol: float = 1e-4,
        max_epochs: int | None = None,
        solver: str = "auto",
        scale: str = "none",
        memory: int | str | None = None,
        threads: int | None = None,
        scratch_dir: str | os.PathLike[str] | None = None,
        random_state: int | np.random.RandomState | None = None,
        warm_start: bool = False,
    ) -> None:
        self.C = C
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.regularise_intercept = regularise_intercept
        self.intercept_scaling = intercept_scaling
        self.class_weight = class_weight
        self.tol = tol
        self.max_epochs = max_epochs
        self.solver = solver
        self.scale = scale
        self.memory = memory
        self.threads = threads
        self.scratch_dir = scratch_dir
        self.random_state = random_state
        self.warm_start = warm_start

    def _labels(self, y: np.ndarray, sample_weight: Any = None) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
        """The classes, the index of that of each row, and the settings."""
        check_classification_targets(y)
        classes, places = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"y has one class only, {_plain(classes[0])!r}; training needs at least two classes")
        factors = compute_class_weight(self.class_weight, classes=classes, y=y)
        if self.class_weight == "balanced" and sample_weight is not None:
            # A row of weight 2 counts like two rows; not all versions of scikit-learn do that.
            shares = np.bincount(places, weights=sample_weight, minlength=len(classes))
            factors = np.where(shares > 0, shares.mean() / np.where(shares > 0, shares, 1.0), 1.0)
        weights = [(str(place), factor) for place, factor in enumerate(factors.tolist())]
        return classes, places.astype(np.uint32), {**self._config(), "class_weights": weights}

    def _config_of_files(self) -> dict[str, Any]:
        factors = self.class_weight
        if isinstance(factors, str) and factors != "balanced":
            raise ValueError(f"class_weight={factors!r} is not known; give 'balanced' or a dict")
        named = factors if isinstance(factors, Mapping) else {}
        weights = [(_plain(name), float(factor)) for name, factor in named.items()]
        return {**self._config(), "class_weights": weights, "balanced": factors == "balanced"}

    def _use(self, coefficients: Any, intercepts: Any, classes: Any, labels: list[float], names: list[str]) -> None:
        if classes is None:
            classes = np.array(names) if names else np.array(labels)
            if not names and np.all(classes == np.round(classes)):
                classes = classes.astype(np.int64)
        order = np.argsort(classes)
        self.classes_ = classes[order]
        if len(order) > 2:
            coefficients, intercepts = coefficients[order], intercepts[order]
        elif order[0] == 0:
            # The solver's first class is the positive one, scikit-learn's second.
            coefficients, intercepts = 0.0 - coefficients, 0.0 - intercepts
        self.coef_, self.intercept_ = coefficients, intercepts

    def decision_function(self, X: Any) -> np.ndarray:
        """w·x of each row: above 0 for ``classes_[1]``; with more than two classes a column for each."""
        values = self._values(X)
        return values.ravel() if values.shape[1] == 1 else values

    def predict(self, X: Any) -> np.ndarray:
        """The class of each row."""
        values = self.decision_function(X)
        places = (values > 0).astype(np.intp) if values.ndim == 1 else values.argmax(axis=1)
        return self.classes_[places]

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class, a column each: of the multinomial loss, or with more than two classes of the
        logistic one each class's own divided by their sum.
        """
        return np.exp(self.predict_log_proba(X))

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Their logarithms."""
        values = self.decision_function(X)
        if values.ndim == 1:
            return log_expit(np.column_stack([-values, values]))
        # With low values all shares may underflow, but not their ratios.
        shares = values if self.loss == "multinomial" else log_expit(values)
        return log_softmax(shares, axis=1)


class LinearClassifier(_Classifier):
    """A linear support vector machine, or multinomial logistic regression.

    Parameters
    ----------
    C : cost of a unit of loss; ``np.inf`` for no penalty, with the loss ``"multinomial"`` of two classes: the gap is then
        estimated, and :meth:`summary_frame` has standard errors and p values.
    loss : ``"hinge"`` or ``"squared_hinge"``. Or
        ``"multinomial"``, one loss of all classes, as :class:`LogisticRegression` has it, with ``predict_proba``.
    l1_ratio : the share r of ‖w‖₁ in the penalty, r ‖w‖₁ + (1 − r) ½‖w‖²: 0 for ½‖w‖², 1 for ‖w‖₁, which leaves most weights
        0. Above 0 the loss must be smooth, and with more than two classes ``"logistic"`` or ``"squared_hinge"``.
    fit_intercept : whether every row gets a constant feature.
    regularise_intercept : whether its weight counts in ‖w‖², as in LIBLINEAR; by default it is free, as in scikit-learn.
    intercept_scaling : the value of that feature (the command's ``--bias``).
    class_weight : factors on ``C`` by class, as a dict, or ``"balanced"``: one over the class's share of the weight of all rows.
    tol : the certified relative gap, (primal − dual) / dual, at which training ends.
    max_epochs : maximum number of epochs, or passes of Newton's method or L-BFGS; ``None`` for 1000 visits of a row, or 300
        passes (30 epochs for files that do not fit in memory, but 300 passes of L-BFGS).
    solver : ``"newton"``, ``"l-bfgs"`` (smooth losses), ``"coordinate-descent"``, or ``"auto"``: the one of the fewest
        operations; coordinate descent gives way where it stops getting nearer. The multinomial loss of more than two
        classes has ``"l-bfgs"`` only.
    scale : ``"standard"`` or ``"max-abs"`` scales features before training; coefficients are for unscaled features.
    memory : memory for files: ``"512MiB"``, ``"2GB"`` or bytes; ``None`` for 1 GiB, or a quarter of what the
        machine or container has if that is less.
    threads : compute threads, and loading threads for files; by default as many as there are processors, and 3 that load.
    scratch_dir : folder for temporary copies of files; by default the system's temporary folder.
    random_state : seed of the order in which rows are visited; a number is the command's ``--seed``.
    warm_start : whether ``fit`` begins from the weights of the ``fit`` before, of features by name or place; for smooth losses.

    Attributes
    ----------
    coef_, intercept_ : of the decision function; one row for two classes, else one a class.
    classes_ : the classes, sorted.
    primal_, dual_ : the exact objective of the model, and a proven lower bound of the optimum.
    gap_ : (primal − dual) / dual: the objective is at most this far from the optimum, relatively.
    n_iter_ : epochs, or passes of Newton's method or L-BFGS.
    n_features_in_ : number of features.
    feature_names_in_ : names of the columns of a data frame or of files, where they have names. Data frames for
        prediction must have the same names in the same order, as scikit-learn requires.
    """

    def __init__(
        self,
        C: float = 1.0,
        *,
        loss: str = "hinge",
        l1_ratio: float = 0.0,
        fit_intercept: bool = True,
        regularise_intercept: bool = False,
        intercept_scaling: float = 1.0,
        class_weight: Mapping[Any, float] | str | None = None,
        tol: float = 1e-4,
        max_epochs: int | None = None,
        solver: str = "auto",
        scale: str = "none",
        memory: int | str | None = None,
        threads: int | None = None,
        scratch_dir: str | os.PathLike[str] | None = None,
        random_state: int | np.random.RandomState | None = None,
        warm_start: bool = False,
    ) -> None:
        super().__init__(
            C,
            l1_ratio=l1_ratio,
            fit_intercept=fit_intercept,
            regularise_intercept=regularise_intercept,
            intercept_scaling=intercept_scaling,
            class_weight=class_weight,
            tol=tol,
            max_epochs=max_epochs,
            solver=solver,
            scale=scale,
            memory=memory,
            threads=threads,
            scratch_dir=scratch_dir,
            random_state=random_state,
            warm_start=warm_start,
        )
        self.loss = loss

    def _loss(self) -> str:
        names = {"hinge": "hinge", "squared_hinge": "squared-hinge", "multinomial": "multinomial"}
        if self.loss not in names:
            raise ValueError(f"loss={self.loss!r} is not a loss: use 'hinge', 'squared_hinge' or 'multinomial'")
        return names[self.loss]


class LogisticRegression(_Classifier):
    """Logistic regression; with more than two classes multinomial, as scikit-learn's, or each against the rest.

    Parameters and attributes are those of :class:`LinearClassifier`, but for

    loss : ``"multinomial"``, or ``"logistic"`` to train each of more than two classes against the rest.
    """

    def __init__(
        self,
        C: float = 1.0,
        *,
        loss: str = "multinomial",
        l1_ratio: float = 0.0,
        fit_intercept: bool = True,
        regularise_intercept: bool = False,
        intercept_scaling: float = 1.0,
        class_weight: Mapping[Any, float] | str | None = None,
        tol: float = 1e-4,
        max_epochs: int | None = None,
        solver: str = "auto",
        scale: str = "none",
        memory: int | str | None = None,
        threads: int | None = None,
        scratch_dir: str | os.PathLike[str] | None = None,
        random_state: int | np.random.RandomState | None = None,
        warm_start: bool = False,
    ) -> None:
        super().__init__(
            C,
            l1_ratio=l1_ratio,
            fit_intercept=fit_intercept,
            regularise_intercept=regularise_intercept,
            intercept_scaling=intercept_scaling,
            class_weight=class_weight,
            tol=tol,
            max_epochs=max_epochs,
            solver=solver,
            scale=scale,
            memory=memory,
            threads=threads,
            scratch_dir=scratch_dir,
            random_state=random_state,
            warm_start=warm_start,
        )
        self.loss = loss

    def _loss(self) -> str:
        if self.loss not in _PROBABLE:
            raise ValueError(f"loss={self.loss!r} is not a loss of logistic regression: use 'multinomial' or 'logistic'")
        return str(self.loss)


class LinearRegressor(RegressorMixin, _LinearModel):  # type: ignore[misc]
    """A linear regression of real targets: least squares, support vectors, Huber's or Poisson's.

    The solver has features, and targets less about their mean, in 32 bits.

    Parameters
    ----------
    C : cost of a unit of loss; for ``"squared"`` it is 1 / alpha of scikit-learn's ``Ridge``. ``np.inf`` for no penalty, with
        ``"squared"`` or ``"poisson"``: the gap is then estimated, and :meth:`summary_frame` has standard errors and p values.
    loss : with r = y − (w·x + b), ``"squared"`` (½ r²), ``"epsilon_insensitive"`` (|r| beyond epsilon, as
        ``LinearSVR``), ``"squared_epsilon_insensitive"`` (its square), ``"huber"`` (½ r², from |r| = epsilon on linear;
        without the scale that ``HuberRegressor`` estimates), or ``"poisson"`` (half the deviance of y ≥ 0 from
        exp(w·x + b)).
    epsilon : the number of such a loss; ``None`` for 0.1, or 1.35 for ``"huber"``.
    l1_ratio : as of :class:`LinearClassifier`; with ``"squared"``, C = 1 / (n alpha) and n rows, 1 is scikit-learn's ``Lasso`` and
        a share its ``ElasticNet``.
    fit_intercept, regularise_intercept, intercept_scaling, tol, max_epochs, solver, scale, memory, threads, scratch_dir,
    random_state, warm_start : as of :class:`LinearClassifier`.

    Attributes
    ----------
    coef_, intercept_ : the weight of each feature, and b.
    primal_, dual_, gap_, n_iter_, n_features_in_, feature_names_in_ : as of :class:`LinearClassifier`.
    """

    def __init__(
        self,
        C: float = 1.0,
        *,
        loss: str = "squared",
        epsilon: float | None = None,
        l1_ratio: float = 0.0,
        fit_intercept: bool = True,
        regularise_intercept: bool = False,
        intercept_scaling: float = 1.0,
        tol: float = 1e-4,
        max_epochs: int | None = None,
        solver: str = "auto",
        scale: str = "none",
        memory: int | str | None = None,
        threads: int | None = None,
        scratch_dir: str | os.PathLike[str] | None = None,
        random_state: int | np.random.RandomState | None = None,
        warm_start: bool = False,
    ) -> None:
        self.C = C
        self.loss = loss
        self.epsilon = epsilon
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.regularise_intercept = regularise_intercept
        self.intercept_scaling = intercept_scaling
        self.tol = tol
        self.max_epochs = max_epochs
        self.solver = solver
        self.scale = scale
        self.memory = memory
        self.threads = threads
        self.scratch_dir = scratch_dir
        self.random_state = random_state
        self.warm_start = warm_start

    def _loss(self) -> str:
        name = str(self.loss).replace("_", "-")
        if name not in _REGRESSIONS:
            names = ", ".join(repr(name.replace("-", "_")) for name in _REGRESSIONS)
            raise ValueError(f"loss={self.loss!r} is not a loss of a regression: use one of {names}")
        if self.epsilon is None:
            return name
        if not _REGRESSIONS[name]:
            raise ValueError(f"epsilon does not apply to loss={self.loss!r}; leave it out")
        _check_number("epsilon", self.epsilon, -np.inf, np.inf)
        return f"{name}:{float(self.epsilon)!r}"

    def _labels(self, y: np.ndarray, sample_weight: Any = None) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
        """No classes, the bits of the target of each row, and the settings."""
        self._target_centre: float = self._centre_of(y)
        with np.errstate(over="ignore"):
            targets = (y - self._target_centre).astype(np.float32)
        wrong = np.flatnonzero(~np.isfinite(targets))
        if len(wrong):
            raise ValueError(f"y[{wrong[0]}] is {y[wrong[0]]:g}, beyond 32-bit floating point; scale the targets")
        return np.empty(0), targets.view(np.uint32), self._config()

    def _centre_of(self, y: np.ndarray) -> float:
        """What is subtracted from targets before they become float32: their mean, where they are far from 0 for how they
        differ. With a free intercept it changes nothing else; without one, as with files, those much further are refused.
        """
        if self.loss == "poisson":
            return 0.0
        with np.errstate(all="ignore"):
            mean, deviation = float(np.mean(y, dtype=np.float64)), float(np.std(y, dtype=np.float64))
        if not (np.isfinite(mean) and abs(mean) > _FAR * deviation):
            return 0.0
        if self.fit_intercept and not self.regularise_intercept:
            return mean
        if 0 < deviation < abs(mean) / _COARSE:
            raise ValueError(
                f"y has values about {mean:.9g} that differ by about {deviation:.1g}, too little for the solver's 32-bit floating "
                "point; leave fit_intercept and regularise_intercept at their defaults, or subtract a constant"
            )
        return 0.0

    def _config_of_files(self) -> dict[str, Any]:
        return self._config()

    def _use(self, coefficients: Any, intercepts: Any, classes: Any, labels: list[float], names: list[str]) -> None:
        self.coef_, self.intercept_ = coefficients[0], float(intercepts[0])

    def predict(self, X: Any) -> np.ndarray:
        """The predicted target of each row."""
        values = self._values(X)
        return np.exp(values) if self.loss == "poisson" else values

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = self.loss == "poisson"
        return tags


def to_sklearn(model: _LinearModel | str | os.PathLike[str]) -> Pipeline:
    """A pipeline of scikit-learn's own classes that predicts what a model predicts, and needs no Pelton.

    ``model`` is a fitted estimator, or the run folder or model file of ``pelton train linear``. The pipeline takes data
    frames with the columns of the training data by their names, and further ones, or arrays if these have no names. A
    column that scikit-learn has no equal of, a date or hashed text, is an error.
    """
    from ._export import pipeline_of

    if not isinstance(model, (str, os.PathLike)):
        return pipeline_of(model)
    loss, labels, names, vectors, schema, means, threshold = _pelton.linear_model(model)
    loss = loss.partition(":")[0].replace("-", "_")
    saved: Any = LinearClassifier(loss=loss) if labels else LinearRegressor(loss=loss)
    coefficients = np.stack([np.asarray(vector) for vector, _ in vectors])
    saved._use(coefficients, np.array([intercept for _, intercept in vectors]), None, labels, names)
    saved._schema = schema
    return pipeline_of(saved, means, threshold)


def _names_files(X: Any) -> bool:
    if isinstance(X, (list, tuple)):
        return len(X) > 0 and all(isinstance(name, (str, bytes, os.PathLike)) for name in X)
    return isinstance(X, (str, bytes, os.PathLike))


def _data_of(files: Any, data: dict[str, Any]) -> dict[str, Any]:
    data = dict(data)
    columns = data.pop("columns", None) or {}
    return {**load(files, **data)._data, "columns": [f"{name}={kind}" for name, kind in columns.items()]}


def _weights(values: np.ndarray) -> bytes:
    values = np.asarray(values, dtype=np.float64)
    wrong = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if len(wrong):
        raise ValueError(f"sample_weight[{wrong[0]}] is {values[wrong[0]]}; weights are numbers of at least 0")
    return bytes_of(values, np.float32)


def _check_number(name: str, value: Any, above: float, below: float) -> None:
    if not (isinstance(value, numbers.Real) and above < float(value) < below):
        raise ValueError(f"{name}={value!r} is out of range; give a number between {above:g} and {below:g}")


def _plain(name: Any) -> Any:
    return name.item() if isinstance(name, np.generic) else name
