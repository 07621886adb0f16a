"""Predictions of an ensemble: the models of one path, or of many draws and chains, taken together.

With `m` members, outputs `f_i(x)` and, for classification, probabilities `p_i(x) = softmax f_i(x)`:

    predict_proba   p(x) = mean_i p_i(x)
    vote            the class that most members think the likeliest; among equals the one with the larger p(x)
    uncertainty     H[p] in all = mean_i H[p_i] expected + the mutual information of prediction and member, in nats:
                    the first part is in the data, the second is what the members disagree about
                    (Depeweg et al. 2018, arXiv:1710.07283)

For regression: mean and standard deviation of the outputs over the members, divided by `m` and not `m - 1`.

Outputs are computed for some samples and some members at a time, and summed in float64, so that memory is bounded by a
block and not by members × samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from tiltwalk import check, ensemble_file
from tiltwalk.losses import blocks
from tiltwalk.networks import Network

Task = Literal["classification", "regression"]
Outputs = Float[np.ndarray, "b n k"]
TASKS = ("classification", "regression")
# Outputs of one block: 2^22 in float64 are 32 MiB.
TOGETHER = 1 << 22


@dataclass(frozen=True, eq=False)
class ClassUncertainty:
    """Entropies in nats: `total = expected + mutual_information`."""

    total: Float[np.ndarray, " n"]
    expected: Float[np.ndarray, " n"]
    mutual_information: Float[np.ndarray, " n"]


@dataclass(frozen=True, eq=False)
class ValueUncertainty:
    """Standard deviation of the members' outputs."""

    deviation: Float[np.ndarray, "n *k"]


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Members that predict together.

    `paths` is any array of models: `(tau, d)`, `(chains, draws, tau, d)`, or already `(m, d)`. `task` is classification for
    a network of two or more outputs, which are logits, and regression for one of a single output, unless it is given.
    `classes` are the labels that `predict` and `vote` return; numbers from zero where there are none. `block` is how many
    samples are evaluated at a time.
    """

    network: Any
    paths: Float[np.ndarray, "*many d"]
    task: Task | None = None
    classes: tuple[Any, ...] | None = None
    block: int = 1024

    def __post_init__(self) -> None:
        check.whole("Ensemble.block", self.block, low=1)
        dim, n_out = _described(self.network)
        object.__setattr__(self, "paths", _models(self.paths, dim))
        if self.task is None:
            object.__setattr__(self, "task", "classification" if n_out > 1 else "regression")
        check.one_of("Ensemble.task", self.task, TASKS)
        if self.task == "classification" and n_out < 2:
            raise ValueError(f"Ensemble.network must have an output for each class, two or more; got {n_out}.")
        if self.classes is not None:
            if self.task == "regression":
                raise ValueError(f"Ensemble.classes must be None for regression; got {check.shown(self.classes)}.")
            labels = tuple(np.asarray(self.classes).tolist())
            if len(set(labels)) != n_out or len(labels) != n_out:
                raise ValueError(f"Ensemble.classes must be {n_out} different labels, one an output; got {labels}.")
            object.__setattr__(self, "classes", labels)

    def __len__(self) -> int:
        return len(self.thetas)

    def __repr__(self) -> str:
        return f"Ensemble({len(self)} members of {self.thetas.shape[1]} parameters, {self.task})"

    @property
    def thetas(self) -> Float[np.ndarray, "m d"]:
        """The members' parameters, one row a member."""
        return self.paths.reshape(-1, self.paths.shape[-1])

    def predict(self, X: ArrayLike) -> np.ndarray[Any, Any]:
        """The class of the largest mean probability, or the mean output: `(n,)` where there is one output a sample."""
        if self.task == "classification":
            return self._named(self.predict_proba(X).argmax(axis=1))
        return _squeezed(self.mean(X))

    def predict_proba(self, X: ArrayLike) -> Float[np.ndarray, "n k"]:
        """Mean over the members of their probabilities of each class."""
        self._only("predict_proba", "classification")
        return self._average(X, softmax)

    def votes(self, X: ArrayLike) -> Int[np.ndarray, "n k"]:
        """How many members think each class the likeliest."""
        self._only("votes", "classification")
        counts: Int[np.ndarray, "n k"] = np.rint(len(self) * self._average(X, _ballots)).astype(np.int64)
        return counts

    def vote(self, X: ArrayLike) -> np.ndarray[Any, Any]:
        """The class with the most votes; among classes with equally many, the one with the largest mean probability."""
        self._only("vote", "classification")
        both = self._average(X, lambda outputs: np.concatenate([_ballots(outputs), softmax(outputs)], axis=-1))
        shares, probabilities = np.split(both, 2, axis=1)
        counts = np.rint(len(self) * shares)
        leading = counts == counts.max(axis=1, keepdims=True)
        return self._named(np.where(leading, probabilities, -1.0).argmax(axis=1))

    def mean(self, X: ArrayLike) -> Float[np.ndarray, "n k"]:
        """Mean over the members: of probabilities for classification, of outputs for regression."""
        return self._average(X, self._values())

    def std(self, X: ArrayLike) -> Float[np.ndarray, "n k"]:
        """Standard deviation over the members of what `mean` is the mean of."""
        X, values = self._inputs(X), self._values()
        squares = np.zeros((len(X), self.network.n_out))
        means = np.zeros_like(squares)
        for rows, members, outputs in self._blocks(X):
            # Sums of squares about the mean, merged block by block (Chan, Golub, LeVeque 1983): no large numbers cancel.
            block, before, more = values(outputs), members.start, members.stop - members.start
            shift = block.mean(axis=0) - means[rows]
            squares[rows] += ((block - block.mean(axis=0)) ** 2).sum(axis=0) + shift**2 * before * more / members.stop
            means[rows] += shift * more / members.stop
        return np.sqrt(squares / len(self))

    def uncertainty(self, X: ArrayLike) -> ClassUncertainty | ValueUncertainty:
        """How sure the ensemble is of each sample: entropies for classification, the deviation for regression."""
        if self.task == "regression":
            return ValueUncertainty(_squeezed(self.std(X)))
        both = self._average(X, _with_entropy)
        total, expected = entropy(both[:, :-1]), both[:, -1]
        return ClassUncertainty(total, expected, np.maximum(total - expected, 0.0))

    def members(self, X: ArrayLike) -> Float[np.ndarray, "m n k"]:
        """Each member's outputs, logits for classification: the one thing here that is members × samples large."""
        X = self._inputs(X)
        out = np.empty((len(self), len(X), self.network.n_out), self.thetas.dtype)
        for rows, members, outputs in self._blocks(X):
            out[members, rows] = outputs
        return out

    def save(self, path: str | Path) -> None:
        """Writes members and network as one safetensors file, whole or not at all."""
        ensemble_file.save(path, self.packed())

    def packed(self) -> bytes:
        """What `save` writes."""
        return ensemble_file.packed(self.thetas, self.network, task=str(self.task), classes=self.classes)

    @classmethod
    def load(cls, path: str | Path, network: Any = None) -> Ensemble:
        """The ensemble in a file that `save` wrote. A network made from another library's module must be given again."""
        thetas, network, task, classes = ensemble_file.load(path, network)
        try:
            return cls(network, thetas, task, classes)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{Path(path).name} must be an ensemble that was saved whole; {error}") from None

    def _only(self, what: str, task: Task) -> None:
        if self.task != task:
            raise ValueError(f"Ensemble.{what} must be asked of {task}; got an ensemble for {self.task}.")

    def _named(self, indices: Int[np.ndarray, " n"]) -> np.ndarray[Any, Any]:
        return indices if self.classes is None else np.asarray(self.classes)[indices]

    def _values(self) -> Callable[[Outputs], np.ndarray[Any, Any]]:
        return softmax if self.task == "classification" else lambda outputs: outputs

    def _average(self, X: ArrayLike, of: Callable[[Outputs], np.ndarray[Any, Any]]) -> Float[np.ndarray, "n c"]:
        """Mean over the members of a function of their outputs."""
        X = self._inputs(X)
        total: np.ndarray[Any, Any] | None = None
        for rows, _, outputs in self._blocks(X):
            part = of(outputs).sum(axis=0)
            total = np.zeros((len(X), *part.shape[1:])) if total is None else total
            total[rows] += part
        assert total is not None
        return total / len(self)

    def _inputs(self, X: ArrayLike) -> np.ndarray[Any, Any]:
        X = np.asarray(X)
        if X.dtype.kind not in "fiub":
            raise TypeError(f"Ensemble.X must be an array of numbers, samples first; got {check.shown(X)}.")
        with np.errstate(over="ignore"):  # what is too large is refused just below
            X = X.astype(self.thetas.dtype, copy=False)
        if X.ndim < 2 or X.size == 0:
            raise ValueError(f"Ensemble.X must be one row for each of at least one sample; got {check.shown(X)}.")
        bad = ~np.isfinite(X).reshape(len(X), -1).all(axis=1)
        if bad.any():
            raise ValueError(f"Ensemble.X must be finite; got NaN or infinity in sample {int(bad.argmax())}.")
        return X

    def _blocks(self, X: np.ndarray[Any, Any]) -> Iterator[tuple[slice, slice, Outputs]]:
        """Samples, members and their outputs in float64. Blocks are of one shape, so that one program serves them all."""
        samples = _even(len(X), self.block)
        at_once = _even(len(self), max(1, TOGETHER // (samples * self.network.n_out)))
        for i in range(0, len(X), samples):
            rows = slice(i, min(i + samples, len(X)))
            inputs = _padded(X[rows], samples)
            for j in range(0, len(self), at_once):
                members = slice(j, min(j + at_once, len(self)))
                outputs = np.asarray(_outputs(self.network, _padded(self.thetas[members], at_once), inputs), np.float64)
                outputs = outputs[: members.stop - j, : rows.stop - i]
                if not np.isfinite(outputs).all():
                    member, sample, _ = np.argwhere(~np.isfinite(outputs))[0]
                    raise ValueError(
                        f"Ensemble.network must give finite outputs; got NaN or infinity from member {j + member} "
                        f"for sample {i + sample}."
                    )
                yield rows, members, outputs


def softmax(logits: Float[np.ndarray, "... k"]) -> Float[np.ndarray, "... k"]:
    """Probabilities from logits, along the last axis."""
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    shares: Float[np.ndarray, "... k"] = powers / powers.sum(axis=-1, keepdims=True)
    return shares


def entropy(probabilities: Float[np.ndarray, "... k"]) -> Float[np.ndarray, "..."]:
    """Shannon's entropy in nats, along the last axis."""
    nats: Float[np.ndarray, "..."] = -np.sum(probabilities * np.log(np.where(probabilities > 0, probabilities, 1.0)), -1)
    return nats


def _ballots(outputs: Outputs) -> Float[np.ndarray, "b n k"]:
    ballots: Float[np.ndarray, "b n k"] = np.eye(outputs.shape[-1])[outputs.argmax(axis=-1)]
    return ballots


def _with_entropy(outputs: Outputs) -> Float[np.ndarray, "b n k+1"]:
    probabilities = softmax(outputs)
    return np.concatenate([probabilities, entropy(probabilities)[..., None]], axis=-1)


@partial(jax.jit, static_argnums=0)
def _outputs(network: Any, thetas: Any, X: Any) -> Any:
    return blocks.outputs(network, thetas, X) if isinstance(network, Network) else network.apply_many(thetas, X)


def _described(network: Any) -> tuple[int, int]:
    try:
        return int(network.dim), int(network.n_out)
    except (AttributeError, TypeError):
        raise TypeError(
            f"Ensemble.network must be a network, with dim, n_out and apply_many; got {check.shown(network)}."
        ) from None


def _models(paths: Any, dim: int) -> np.ndarray[Any, Any]:
    allowed = f"models of {dim} parameters: (tau, d), (chains, draws, tau, d) or (m, d)"
    array = np.asarray(paths)
    if array.dtype not in (np.float32, np.float64):
        array = check.numeric("Ensemble.paths", paths, allowed).astype(np.float32)
    if array.ndim < 2 or array.shape[-1] != dim or array.size == 0:
        raise ValueError(f"Ensemble.paths must be {allowed}; got an array of shape {array.shape}.")
    if not np.isfinite(array).all():
        raise ValueError(f"Ensemble.paths must be finite; got {int((~np.isfinite(array)).sum())} NaN or infinite entries.")
    return array


def _squeezed(values: Float[np.ndarray, "n k"]) -> np.ndarray[Any, Any]:
    return values[:, 0] if values.shape[1] == 1 else values


def _even(total: int, most: int) -> int:
    """The size of equal blocks of at most `most`, with the least left over."""
    return math.ceil(total / math.ceil(total / most))


def _padded(rows: np.ndarray[Any, Any], size: int) -> np.ndarray[Any, Any]:
    return rows if len(rows) == size else np.concatenate([rows, np.repeat(rows[-1:], size - len(rows), axis=0)])
