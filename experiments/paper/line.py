"""Stein's equation on the line, by quadrature: what polynomials of any degree leave of a variance,
and the bound of Proposition 2.

Polynomials are orthonormal under Π and made by Arnoldi's recurrence on a grid, with their
derivatives, so that degree 100 is as precise as degree 2: monomials are of no use from degree 15
on. Everything is stored times the square root of the quadrature's weights.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .mixtures import Mixture


class Line(NamedTuple):
    """A grid (n,) with weights that sum to one, scores of Π, and the integrand."""

    x: np.ndarray
    weights: np.ndarray
    scores: np.ndarray
    f: np.ndarray

    @classmethod
    def of(cls, target: Mixture, integrand, reach: float = 24.0, count: int = 12_001) -> Line:
        """`reach`: a polynomial of degree k has its mass within √(4k) of a standard normal."""
        x = np.linspace(-reach, reach, count)
        sds = np.sqrt(target.covariances[:, 0])
        logs = np.log(target.weights[:, None] / sds) - 0.5 * ((x - target.means) / sds) ** 2
        peak = logs.max(axis=0)
        shares = np.exp(logs - peak)
        total = shares.sum(axis=0)
        density = np.exp(peak - peak.max()) * total
        pulls = -(x - target.means) / sds**2
        scores = np.sum(shares * pulls, axis=0) / total
        return cls(x, density / density.sum(), scores, integrand(x[:, None]))

    @property
    def centred(self) -> np.ndarray:
        """√w (f − Π f)."""
        return np.sqrt(self.weights) * (self.f - self.weights @ self.f)

    def polynomials(self, most: int) -> np.ndarray:
        """√w times p_j, p_j′ and p_j″, (3, most, n), of degrees 0 … most − 1."""
        out = np.zeros((3, most, len(self.x)))
        out[0, 0] = np.sqrt(self.weights)
        for j in range(most - 1):
            p, slope, bend = out[:, j]
            new = np.stack([self.x * p, p + self.x * slope, 2 * slope + self.x * bend])
            for _ in range(2):  # twice is enough
                new -= np.einsum("i,kin->kn", out[0, : j + 1] @ new[0], out[:, : j + 1])
            out[:, j + 1] = new / np.linalg.norm(new[0])
        return out

    def reached(self, most: int) -> np.ndarray:
        """J / Var f of the best potential of each degree 1 … most: g = v′ + v s for the slope v of
        the potential, of one degree less."""
        made, left, basis, found = self.polynomials(most), self.centred, [], []
        variance = left @ left
        for j in range(most):
            g = made[1, j] + made[0, j] * self.scores
            for _ in range(2):
                for other in basis:
                    g = g - other * (other @ g)
            g = g / np.linalg.norm(g)
            basis.append(g)
            left = left - g * (g @ left)
            found.append(left @ left / variance)
        return np.array(found)

    def solution(self) -> np.ndarray:
        """√w times u, u′ and u″ (3, n) for the u of Stein's equation u″ + u′ s = f − Π f, with mean
        zero. u′ = ∫ (f − Π f) dΠ / π from the nearer side: the other one cancels."""
        step, root = self.x[1] - self.x[0], np.sqrt(self.weights)
        h = (self.f - self.weights @ self.f) * self.weights
        left = np.cumsum(h) - 0.5 * h
        right = -(np.cumsum(h[::-1])[::-1] - 0.5 * h)
        inside = self.weights > 1e-280  # beyond, nothing is left of a density
        whole = np.where(self.x < 0, left, right)
        slope = np.where(inside, step * whole / np.where(inside, self.weights, 1.0), 0.0)
        bend = np.where(inside, self.f - self.weights @ self.f - slope * self.scores, 0.0)
        u = np.cumsum(slope) * step
        return root * np.stack([u - self.weights @ u, slope, bend])

    def norm(self, made: np.ndarray) -> float:
        """max(‖u‖ of W^{1,4}, ‖u‖ of W^{2,2}) for √w (u, u′, u″), (3, n)."""
        used = self.weights > 1e-280
        root = np.sqrt(self.weights[used])
        u, slope, _ = made[:, used] / root
        fourth = (self.weights[used] @ (u**4 + slope**4)) ** 0.25
        return float(max(fourth, np.sqrt(np.sum(made**2))))

    def closest(
        self, made: np.ndarray, target: np.ndarray, start: np.ndarray, rounds: int = 80
    ) -> np.ndarray:
        """Coefficients (k,) of the combination of polynomials (3, k, n) that is closest to `target`
        (3, n) in W^{1,4}: Newton's steps from `start`, each a weighted least squares. Projections
        of W^{2,2} do not do: their fourth moments grow without end with the degree."""
        used = self.weights > 1e-280
        root = np.sqrt(self.weights[used])
        rows = np.concatenate(list(made[:2][:, :, used]), axis=1).T
        right = np.concatenate(list(target[:2, used]))
        scale = np.concatenate([root, root])
        found = np.pad(start, (0, made.shape[1] - len(start)))
        for _ in range(rounds):
            size = np.abs(right - rows @ found) / scale
            size = np.maximum(size, 1e-8 * size.max())
            new = np.linalg.lstsq(rows * size[:, None], right * size, rcond=None)[0]
            found = found + (new - found) / 3
        return found

    def image(self, made: np.ndarray) -> np.ndarray:
        """√w L u."""
        return made[2] + made[1] * self.scores

    def bound(self) -> float:
        """Of the norm of L, as Proposition 2 prints it: 2 (‖s‖² of L⁴ + 1)^½."""
        return float(2 * np.sqrt(np.sqrt(self.weights @ self.scores**4) + 1))
