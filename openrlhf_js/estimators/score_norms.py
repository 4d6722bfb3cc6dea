"""How long a response's score gradient is, from the log-probabilities of its tokens alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def squared_score_norms(
    log_probs: Tensor, mask: Tensor, *, mean_over_tokens: bool = False
) -> Tensor:
    """Return the squared length of each response's score gradient, up to a factor.

        w = sum_t (1 - pi_t)^2

    pi_t is the probability of the token that was sampled. Of the gradient of log pi_t by the
    logits, one minus the token's own probability is the largest part; what the layers below make of
    it is taken to be alike for all responses. A temperature is a common factor. In SmolLM2 and in
    the small tasks a baseline is as near to the gradient with this as with the true length
    (docs/js_grad.md).

    Args:
        log_probs: (..., T) log-probabilities of the sampled tokens under the policy that is
            trained; anything where the mask is False.
        mask: (..., T) True, or not 0, for the tokens that the policy has written.
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
    probabilities = log_probs.double().where(kept, 0.0).exp()
    squares = (1 - probabilities).square()
    norms = squares.sum(-1)
    if mean_over_tokens:
        norms = norms / kept.sum(-1).clamp(min=1).square()
    return norms
