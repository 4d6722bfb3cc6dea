"""The variance of a policy gradient, from the gradients of the micro-batches that it is made of."""

from __future__ import annotations

from typing import NamedTuple


class GradientMoments(NamedTuple):
    """Unbiased estimates for the gradient g of one optimizer step; units of the loss, squared."""

    variance: float  # Var(g), the trace of its covariance; not negative if all w_i are equal
    mean_square: float  # |E g|^2; negative at times, where the noise drowns the mean


class GradientSums(NamedTuple):
    """Sums over the micro-batches of one optimizer step, on all ranks.

    Micro-batch i contributes h_i to the step's gradient g = sum_i h_i and holds the share w_i of
    its responses. In the paper's notation h_i = g_i / m.
    """

    squares: float  # sum_i |h_i|^2
    square_of_sum: float  # |g|^2
    responses: int  # sum_i n_i
    squared_responses: int  # sum_i n_i^2, so that sum_i w_i^2 is this / responses^2

    def moments(self) -> GradientMoments | None:
        """The estimates; None where one micro-batch holds everything.

        Let W = sum_i w_i^2, the h_i be uncorrelated, and E h_i = w_i E g. Then
            E sum_i |h_i|^2 = Var(g) + W |E g|^2   and   E |g|^2 = Var(g) + |E g|^2,
        whatever the variance of each h_i, and solving for the two gives
            Var(g) ~ (sum_i |h_i|^2 - W |g|^2) / (1 - W),
            |E g|^2 ~ (|g|^2 - sum_i |h_i|^2) / (1 - W).
        With equal micro-batches, W = 1 / m, the first is the paper's
            1 / (m (m - 1)) (sum_i |g_i|^2 - |sum_i g_i|^2 / m)
        (eq. unbiased_gradient_trace_cov).
        """
        if self.squared_responses >= self.responses**2:
            return None
        concentration = self.squared_responses / self.responses**2
        return GradientMoments(
            (self.squares - concentration * self.square_of_sum) / (1 - concentration),
            (self.square_of_sum - self.squares) / (1 - concentration),
        )
