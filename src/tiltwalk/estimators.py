"""`TrajectoryClassifier` and `TrajectoryRegressor`: ensembles trained without gradients, as scikit-learn's estimators.

They standardise the data, build the network, call `train`, and predict with the mean over the members. scikit-learn is the
optional extra `sklearn`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from tiltwalk import check, networks
from tiltwalk.ensemble import ClassUncertainty, Ensemble
from tiltwalk.training import Trained, train

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(
        'TrajectoryClassifier and TrajectoryRegressor need scikit-learn: pip install "tiltwalk[sklearn]".'
    ) from error

NETWORKS = ("mlp", "linear", "lenet")


class _Trajectory(BaseEstimator):  # type: ignore[misc]
    """What both share: settings, data in the network's shape and units, training."""

    def __init__(
        self,
        network: Any = "mlp",
        *,
        hidden: Sequence[int] = (32,),
        evaluations: int | None = 20_000,
        seconds: float | None = None,
        n_members: int = 64,
        length: int = 4,
        chains: int = 2,
        s: float | None = None,
        sigma: float | None = None,
        standardise: bool = True,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.network = network
        self.hidden = hidden
        self.evaluations = evaluations
        self.seconds = seconds
        self.n_members = n_members
        self.length = length
        self.chains = chains
        self.s = s
        self.sigma = sigma
        self.standardise = standardise
        self.random_state = random_state
        self.verbose = verbose

    def _train(self, X: Any, y: Any, n_out: int, kind: str, sample_weight: Any) -> Trained:
        """Trains on samples that count for something, and keeps `n_members` of the models, evenly spaced."""
        name = type(self).__name__
        members = check.whole(f"{name}.n_members", self.n_members, low=1)
        length, chains = (check.whole(f"{name}.{p}", getattr(self, p), low=1) for p in ("length", "chains"))
        if self.evaluations is None and self.seconds is None:
            raise ValueError(f"{name}.evaluations and {name}.seconds must not both be None: one of them is the budget.")
        if sample_weight is not None:
            counted = sample_weight > 0
            X, y, sample_weight = X[counted], y[counted], sample_weight[counted]
        self.network_ = self._network(X.shape[1], n_out)
        self._measure(X, sample_weight)
        total = len(X) if sample_weight is None else float(sample_weight.sum())
        trained = train(
            self.network_, self._inputs(X), y, kind=kind, sample_weight=sample_weight,
            seconds=self.seconds, evaluations=None if self.seconds is not None else self.evaluations,
            s=10.0 * total if self.s is None else self.s, length=length, sigma=self.sigma, chains=chains,
            draws=max(1, math.ceil(members / (chains * length))),
            key=int(check_random_state(self.random_state).randint(2**31 - 1)),
            progress=False, report=print if self.verbose else None,
        )  # fmt: skip
        self.run_, self.s_, self.sigma_ = trained.run, trained.s, trained.sigma
        self._chosen = np.linspace(0, len(trained.ensemble) - 1, members).round().astype(int)
        return trained

    def _network(self, n_in: int, n_out: int) -> networks.Network:
        name = type(self).__name__
        if isinstance(self.network, networks.Network):
            if self.network.n_in != n_in or self.network.n_out != n_out:
                raise ValueError(
                    f"{name}.network must take {n_in} features and give {n_out} outputs; got one that takes "
                    f"{self.network.n_in} and gives {self.network.n_out}."
                )
            return self.network
        if not isinstance(self.network, str) or self.network not in NETWORKS:
            raise ValueError(
                f"{name}.network must be one of {', '.join(NETWORKS)}, or a Network; got {check.shown(self.network)}."
            )
        if self.network == "linear":
            return networks.linear(n_in, n_out)
        if self.network == "mlp":
            widths = [check.whole(f"{name}.hidden", width, low=1) for width in np.ravel(self.hidden).tolist()]
            return networks.mlp([n_in, *widths, n_out])
        side = math.isqrt(n_in)
        if side * side != n_in or side < 16:
            raise ValueError(
                f"{name}.X must hold square images of one channel and at least 16 x 16 for lenet; got {n_in} features."
            )
        return networks.lenet(n_out, 1, side)

    def _measure(self, X: Any, weight: Any) -> None:
        """Centre and unit of the inputs: of each feature, or of all together where they are the points of an image."""
        if not self.standardise:
            self.centre_, self.unit_ = 0.0, 1.0
            return
        self.centre_, self.unit_ = _spread(X, weight, together=len(self.network_.input_shape) > 1)

    def _inputs(self, X: Any) -> Any:
        scaled = ((X - self.centre_) / self.unit_).astype(np.float32)
        return scaled.reshape(len(X), *self.network_.input_shape)

    def _checked(self, X: Any) -> Any:
        """Samples to predict, in the network's shape and units."""
        check_is_fitted(self, "ensemble_")
        return self._inputs(validate_data(self, _flat(X), reset=False, dtype=np.float64))


class TrajectoryClassifier(ClassifierMixin, _Trajectory):  # type: ignore[misc]
    """A classifier whose members are the models of sampled paths, trained without gradients.

    - `network`: "mlp" with layers of the widths `hidden`, "linear", "lenet" (rows of square images), or a `Network`.
    - `evaluations` of a model on all samples are the budget, whatever the machine; or `seconds`, which go first if given.
    - `n_members` models, from paths of `length` models in `chains` independent chains.
    - `s`: the tilt of a single model, by default 10 times the samples (the sum of their weights); `sigma`: the step of the
      walk in units of the initialisation, by default found in the warm-up.
    - `standardise`: to mean 0 and deviation 1, each feature, or all points of images together.

    Fitted: `classes_`, `ensemble_`, `run_` (to plot, or to judge by `run_.verdict()`), `s_`, `sigma_`, `n_features_in_`.
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Trains on samples `(n, features)` and labels of any type; a sample of weight 2 counts as two."""
        X, y = validate_data(self, _flat(X), y, dtype=np.float64)
        check_classification_targets(y)
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
        self.classes_, labels = np.unique(y, return_inverse=True)
        present = np.unique(labels if sample_weight is None else labels[sample_weight > 0])
        if len(present) < 2:
            raise ValueError(f"{type(self).__name__}.y must hold at least 2 classes of some weight; got {len(present)} class.")
        trained = self._train(X, labels, len(self.classes_), "cross_entropy", sample_weight)
        self.ensemble_ = Ensemble(
            self.network_, trained.ensemble.thetas[self._chosen], "classification", tuple(self.classes_.tolist())
        )
        return self

    def predict(self, X: Any) -> np.ndarray[Any, Any]:
        """The class of the largest mean probability."""
        likeliest = self.predict_proba(X).argmax(1)
        found: np.ndarray[Any, Any] = self.classes_[likeliest]
        return found

    def predict_proba(self, X: Any) -> np.ndarray[Any, Any]:
        """Mean over the members of their probabilities, in the order of `classes_`."""
        X = self._checked(X)
        return self.ensemble_.predict_proba(X)

    def uncertainty(self, X: Any) -> ClassUncertainty:
        """Entropies of each prediction: in all, expected, and what the members disagree about."""
        X = self._checked(X)
        found = self.ensemble_.uncertainty(X)
        assert isinstance(found, ClassUncertainty)
        return found


class TrajectoryRegressor(RegressorMixin, _Trajectory):  # type: ignore[misc]
    """A regressor whose members are the models of sampled paths, trained without gradients.

    Its settings are those of `TrajectoryClassifier`; the loss is a Gaussian likelihood whose noise is learnt. Targets are
    standardised too, and `y` may have several columns.
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Trains on samples `(n, features)` and values `(n,)` or `(n, k)`; a sample of weight 2 counts as two."""
        X, y = validate_data(self, _flat(X), y, dtype=np.float64, multi_output=True, y_numeric=True)
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
            if not (sample_weight > 0).any():
                raise ValueError(f"{type(self).__name__}.sample_weight must be positive for some sample; got none.")
        self._columns = y.ndim == 2
        values = y.reshape(len(y), -1).astype(float)
        self.target_centre_, self.target_unit_ = _spread(values, sample_weight)
        scaled = (values - self.target_centre_) / self.target_unit_
        trained = self._train(X, scaled, values.shape[1], "gaussian", sample_weight)
        assert trained.run.paths is not None
        log_noise = trained.run.paths[..., -1].reshape(-1)[self._chosen]
        self.noise_ = float(np.sqrt(np.mean(np.exp(2 * log_noise.astype(float))))) * self.target_unit_
        self.ensemble_ = Ensemble(self.network_, trained.ensemble.thetas[self._chosen], "regression")
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The mean over the members; with `return_std` also the deviation of a new value: of the members, and of the noise."""
        X = self._checked(X)
        mean = self._shaped(self.ensemble_.mean(X) * self.target_unit_ + self.target_centre_)
        if not return_std:
            return mean
        return mean, self._shaped(np.hypot(self.ensemble_.std(X) * self.target_unit_, self.noise_))

    def _shaped(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return values if self._columns else values[:, 0]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def _spread(values: Any, weight: Any, together: bool = False) -> tuple[Any, Any]:
    """Mean and deviation of each column, or of all `together`; 1 where a deviation is rounding alone."""
    centre = np.average(values, axis=0, weights=weight)
    centre = centre.mean() if together else centre
    square = np.average((values - centre) ** 2, axis=0, weights=weight)
    unit = np.sqrt(square.mean() if together else square)
    return centre, np.where(unit > 1e-6 * np.abs(centre), unit, 1.0)


def _flat(X: Any) -> Any:
    """Images `(n, height, width, ...)` as rows of their points; whatever else as it came."""
    return X.reshape(len(X), -1) if isinstance(X, np.ndarray) and X.ndim > 2 and X.dtype.kind in "fiub" else X
