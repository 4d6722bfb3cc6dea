"""What one optimizer step's micro-batches say about the mean and the variance of its gradient.

Nothing here knows the training stack: sums go in, estimates come out.
"""

from __future__ import annotations

from typing import NamedTuple

HALF_LIFE = 20  # measurements after which one counts half in the noise scale


class GradientMoments(NamedTuple):
    """Unbiased estimates for the gradient g of one optimizer step; units of the loss, squared."""

    variance: float  # Var(g), the trace of its covariance; not negative if all w_i are equal
    mean_square: float  # |E g|^2; negative at times, where the noise drowns the mean


class GradientSums(NamedTuple):
    """Sums over the micro-batches of one optimizer step, on all ranks.

    Micro-batch i contributes h_i to the step's gradient g = sum_i h_i, and bears the share w_i of
    its responses. In the paper's notation h_i = g_i / m.
    """

    squares: float  # sum_i |h_i|^2
    square_of_sum: float  # |g|^2
    responses: int  # sum_i n_i
    squared_responses: int  # sum_i n_i^2, so that sum_i w_i^2 is this / responses^2

    def moments(self) -> GradientMoments | None:
        """The estimates, or None where there is no more than one micro-batch to compare.

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


class NoiseScale:
    """The simple noise scale of McCandlish et al. (2018), from running means over measurements.

    tr(Sigma) / |E g|^2, Sigma the covariance of one response's gradient: the number of responses
    at which noise and mean weigh the same. Both terms are unbiased but noisy, and the ratio of one
    measurement's would be neither, so that each is averaged before they are divided.
    """

    def __init__(self) -> None:
        self._response_variance = self._mean_square = 0.0

    def update(self, moments: GradientMoments, responses: int) -> float | None:
        """The noise scale in responses, with one more measurement in it.

        Args:
            moments: of the gradient of one optimizer step.
            responses: that the step's gradient is the mean of.

        Returns:
            None while the averages are not positive: the mean is then not known from zero.
        """
        keep = 0.5 ** (1 / HALF_LIFE)  # the start at zero cancels in the ratio
        self._response_variance = (
            keep * self._response_variance + (1 - keep) * responses * moments.variance
        )
        self._mean_square = keep * self._mean_square + (1 - keep) * moments.mean_square
        if self._response_variance <= 0 or self._mean_square <= 0:
            return None
        return self._response_variance / self._mean_square
