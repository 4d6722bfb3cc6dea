"""Group statistics: means; and v, s and the shrinkage coefficient, each leaving out its own prompt.

Equation names are those of "Shrinking the Variance: Shrinkage Baselines for Reinforcement Learning
with Verifiable Rewards". Axes: n prompts, m responses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor


class GroupStatistics(NamedTuple):
    """Statistics of one batch of prompt groups, in reward units (variances: squared).

    A statistic that does not exist (mean of no reward, variance of one) is 0; the counts show
    which.
    """

    prompt_mean: Tensor
    """(n,) mean valid reward of each prompt (eq. prompt_mean)."""
    loo_prompt_mean: Tensor
    """(n, m) the same without response j (eq. local_loo)."""
    loo_batch_mean: Tensor
    """(n,) mean of the other prompts' means (eq. local_loo)."""
    within_variance: Tensor
    """(n,) v: mean squared standard error of the other prompts' means (eq. v-est)."""
    between_variance: Tensor
    """(n,) s: dispersion of the other prompts' means, divided by their number (eq. s-est)."""
    shrinkage: Tensor
    """(n,) lambda, the paper's coefficient (eq. lambda-est), with 0/0 := 0."""
    reward_variance: Tensor
    """(n,) unbiased variance of each prompt's own rewards."""
    valid_responses: Tensor
    """(n,) valid responses of each prompt, as float."""
    other_prompts: Tensor
    """(n,) other prompts that have a valid response, as float."""


def check_rewards(rewards: Any, mask: Any = None) -> tuple[Tensor, Tensor]:
    """Return rewards in at least float32, 0 where masked, and the mask as a boolean tensor.

    Rewards and mask may be tensors, arrays or lists; rewards may be integers or booleans.

    Raises:
        ValueError: shape, dtype or a valid reward does not fit; says which prompt and what to do.
    """
    import torch

    rewards = as_tensor(rewards, "rewards")
    if rewards.ndim != 2 or rewards.numel() == 0:
        raise ValueError(
            f"rewards must be a tensor (prompts, responses), not empty; got {_kind(rewards)}. "
            "Flat rewards come with groups=, the number of each reward's prompt."
        )
    if mask is None:
        mask = torch.ones_like(rewards, dtype=torch.bool)
    mask = as_tensor(mask, "mask")
    if mask.dtype != torch.bool or mask.shape != rewards.shape:
        raise ValueError(
            f"mask must be boolean and of the rewards' shape {tuple(rewards.shape)}, True "
            f"where the response is valid; got {_kind(mask)}."
        )
    mask = mask.to(rewards.device)
    rewards = rewards.to(torch.promote_types(rewards.dtype, torch.float32)).where(mask, 0.0)
    # Within this limit no sum of squares overflows float32, and no product of two such sums
    # float64.
    limit = torch.finfo(torch.float32).max ** 0.5 / rewards.numel()
    usable = rewards.abs() <= limit
    if not usable.all():
        prompt, response = (~usable).nonzero()[0].tolist()
        value = rewards[prompt, response].item()
        raise ValueError(
            f"the reward of prompt {prompt}, response {response} is {value}; allowed are finite "
            f"numbers up to {limit:.2g}. Repair the reward function, or mask the response."
        )
    return rewards, mask


def as_tensor(values: Any, name: str) -> Tensor:
    """Convert a tensor, an array, or a list of numbers or lists to a tensor without gradient."""
    import torch

    try:
        return torch.as_tensor(values).detach()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{name} must be numbers in rows of equal length: {error}.") from error


def _kind(value: Tensor) -> str:
    return f"{value.dtype} {tuple(value.shape)}"


def group_statistics(rewards: Tensor, mask: Tensor | None = None) -> GroupStatistics:
    """Return the statistics that the estimators are built from, in O(n m) time and memory.

    Computed in float64. A sum "without i" is the sum before i plus the sum after i, because for a
    prompt with huge rewards "total minus own" would leave only rounding errors. Deviations are
    measured from a value within the range of the others before they are squared.

        mu_i = mean_j r_i^j                    sigma^2_k = sum_j (r_k^j - mu_k)^2 / (m - 1)
        v_{-i} = mean_{k != i} sigma^2_k / m   s_{-i} = mean_{k != i} (mu_k - mu_{-i})^2
        lambda_i = (n - 1)/n * v_{-i} / (v_{-i} + s_{-i})

    With a mask, m is the number of valid responses of prompt k, and n counts the prompts that have
    one. A prompt with one valid response counts in the means and in s, but has no variance to
    contribute to v.

    Args:
        rewards: (n, m), any float dtype and device; the statistics are at least float32.
        mask: (n, m) bool, True where the response is valid; masked rewards may be anything.

    Raises ValueError as `check_rewards` does.

    Examples:
        >>> import torch
        >>> group_statistics(torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])).shrinkage
        tensor([0.0000, 0.4444, 0.4444])
    """
    checked, valid = check_rewards(rewards, mask)
    statistics = checked_statistics(checked.double(), valid)
    return GroupStatistics._make(values.to(checked.dtype) for values in statistics)


def checked_statistics(rewards: Tensor, mask: Tensor) -> GroupStatistics:
    """Return `group_statistics` of float64 rewards that `check_rewards` has returned."""
    weight = mask.to(rewards.dtype)
    valid = weight.sum(1)
    first = rewards.detach().gather(1, weight.argmax(1, keepdim=True))
    mean_from_first = ((rewards - first) * weight).sum(1) / valid.clamp(min=1)
    prompt_mean = first[:, 0] + mean_from_first  # exact for equal rewards
    residual = (rewards - prompt_mean[:, None]) * weight
    variance = residual.square().sum(1) / (valid - 1).clamp(min=1)

    others_with_variance = sum_of_others((valid >= 2).to(rewards.dtype), 0).clamp(min=1)
    within = sum_of_others(variance / valid.clamp(min=1), 0) / others_with_variance
    other_prompts = sum_of_others((valid > 0).to(rewards.dtype), 0)
    mean_of_others, between = _mean_and_dispersion_of_others(prompt_mean, valid > 0)
    return GroupStatistics(
        prompt_mean=prompt_mean,
        loo_prompt_mean=sum_of_others(rewards, 1) / (valid[:, None] - weight).clamp(min=1),
        loo_batch_mean=mean_of_others * (other_prompts > 0),
        within_variance=within,
        between_variance=between,
        shrinkage=other_prompts / (other_prompts + 1) * ratio(within, within + between),
        reward_variance=variance,
        valid_responses=valid,
        other_prompts=other_prompts,
    )


def _mean_and_dispersion_of_others(means: Tensor, exists: Tensor) -> tuple[Tensor, Tensor]:
    """(n,) each, over the other prompts' means that exist."""
    # The median prompt lies among the others, so none of them is far from it relative to their
    # spread.
    origin = means.detach().where(exists, float("nan")).nanmedian().nan_to_num()
    present = exists.to(means.dtype)
    others = sum_of_others(present, 0).clamp(min=1)
    position = (means - origin) * present
    mean = sum_of_others(position, 0) / others
    squares = sum_of_others(position.square(), 0) / others
    return origin + mean, (squares - mean.square()).clamp(min=0)


def ratio(part: Tensor, whole: Tensor) -> Tensor:
    """Return part / whole, with 0/0 := 0."""
    return part / whole.where(whole > 0, 1.0)


def sum_of_others(values: Tensor, dim: int) -> Tensor:
    """Return, at each place along `dim`, the sum over all other places."""
    return _sum_before(values, dim) + _sum_before(values.flip(dim), dim).flip(dim)


def _sum_before(values: Tensor, dim: int) -> Tensor:
    """Return the sum of all earlier places along `dim`."""
    import torch

    length = values.shape[dim] - 1
    zero = torch.zeros_like(values.narrow(dim, 0, 1))
    return torch.cat([zero, values.narrow(dim, 0, length).cumsum(dim)], dim)
