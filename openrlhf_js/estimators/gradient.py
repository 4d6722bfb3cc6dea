"""Squared lengths of score gradients, and the variance of the policy gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor


def squared_score_norms(
    log_probs: Tensor, mask: Tensor, *, mean_over_tokens: bool = False
) -> Tensor:
    """Return the squared length of each response's score gradient, up to a factor.

        w = sum_t (1 - pi_t)^2

    pi_t is the probability of the sampled token. 1 - pi_t is the largest component of the gradient
    of log pi_t with respect to the logits; the layers below are assumed to affect all responses
    alike. A temperature is a common factor. With SmolLM2 and on the small tasks, a baseline comes
    as close to the gradient with this as with the true length (docs/js_grad.md).

    Args:
        log_probs: (..., T) log-probabilities of the sampled tokens under the policy that is
            trained; anything where the mask is False.
        mask: (..., T) True, or nonzero, for the tokens that the policy has written.
        mean_over_tokens: whether the loss divides each response by its number of tokens |y|, as
            `--js.loss sequence_mean` does. Its gradient is then s / |y|, and w is divided by
            |y|^2. A sum over tokens, and a mean over all tokens of a batch, need no division.

    Returns:
        (...,) float64; 0 for a response without a token.

    Raises:
        ValueError: the two shapes differ.
    """
    if mask.shape != log_probs.shape:
        came = f"{tuple(log_probs.shape)} and {tuple(mask.shape)}"
        raise ValueError(f"log_probs and mask must have the same shape; got {came}.")
    kept = mask.to(device=log_probs.device).bool()
    probabilities = log_probs.detach().double().where(kept, 0.0).exp()
    squares = (1 - probabilities).square()
    norms = squares.sum(-1)
    if mean_over_tokens:
        norms = norms / kept.sum(-1).clamp(min=1).square()
    return norms


class GradientMoments(NamedTuple):
    """Unbiased estimates for the gradient g of one optimizer step; units of the loss, squared."""

    variance: float  # Var(g), the trace of its covariance; not negative if all w_i are equal
    mean_square: float  # |E g|^2; may be negative where the noise exceeds it


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
        """The estimates; None if one micro-batch holds all responses.

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
