"""Group statistics: means, v, s and the shrinkage coefficient, each without the prompt it is for.

Equation names are those of "Shrinking the Variance: Shrinkage Baselines for Reinforcement Learning
with Verifiable Rewards". Axes: n prompts, m responses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor


class GroupStatistics(NamedTuple):
    """Statistics of one batch of prompt groups, in reward units (variances: squared).

    What does not exist (the mean of no reward, the variance of one) is 0; the counts tell it apart.
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
    other_reward_variance: Tensor
    """(n,) its mean over the other prompts."""
    valid_responses: Tensor
    """(n,) valid responses of each prompt, as float."""
    other_prompts: Tensor
    """(n,) other prompts that have a valid response, as float."""


def check_rewards(rewards: Any, mask: Any = None) -> tuple[Tensor, Tensor]:
    """Return rewards in at least float32, 0 where masked, and the mask as a boolean tensor.

    Rewards and mask may be tensors, arrays or lists; whole numbers and truth values are rewards.

    Raises:
        ValueError: shape, dtype or a valid reward does not fit; names the prompt and what to do.
    """
    import torch

    rewards = as_tensor(rewards, "rewards")
    if rewards.ndim != 2 or rewards.numel() == 0:
        raise ValueError(
            f"rewards must be a tensor (prompts, responses), not empty; got {_kind(rewards)}. "
            "Flat rewards come with groups=, the number of each reward's prompt."
        )
    if rewards.is_complex():
        raise ValueError(f"rewards must be real numbers, got {rewards.dtype}.")
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
    # Squares are summed below: within this limit no sum can overflow.
    limit = torch.finfo(rewards.dtype).max ** 0.5 / rewards.numel()
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
    """Return a tensor of what is a tensor, an array, or a list of numbers or lists."""
    import torch

    try:
        return torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{name} must be numbers in rows of equal length: {error}.") from error


def _kind(value: Tensor) -> str:
    return f"{value.dtype} {tuple(value.shape)}"


def group_statistics(rewards: Tensor, mask: Tensor | None = None) -> GroupStatistics:
    """Return the statistics that the estimators are built from, in O(n m) time and memory.

    A sum "without i" is a sum before i plus a sum after i, never "total minus own": the own value
    does not enter at all, not even through rounding. Differences are taken before squares, so that
    rewards far from zero keep their variance.

        mu_i = mean_j r_i^j                    sigma^2_k = sum_j (r_k^j - mu_k)^2 / (m - 1)
        v_{-i} = mean_{k != i} sigma^2_k / m   s_{-i} = mean_{k != i} (mu_k - mu_{-i})^2
        lambda_i = (n - 1)/n * v_{-i} / (v_{-i} + s_{-i})

    With a mask, m is the number of valid responses of prompt k, and n counts the prompts that have
    one. A prompt with one valid response enters the means and s, but has no variance to give to v.

    Args:
        rewards: (n, m), any float dtype and device; computed in at least float32.
        mask: (n, m) bool, True where the response is valid; masked rewards may be anything.

    Errors: `check_rewards`.

    Examples:
        >>> import torch
        >>> group_statistics(torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])).shrinkage
        tensor([0.0000, 0.4444, 0.4444])
    """
    return checked_statistics(*check_rewards(rewards, mask))


def checked_statistics(rewards: Tensor, mask: Tensor) -> GroupStatistics:
    """Return `group_statistics` of what `check_rewards` has returned."""
    weight = mask.to(rewards.dtype)
    valid = weight.sum(1)
    first = rewards.detach().gather(1, weight.argmax(1, keepdim=True))
    from_first = (rewards - first) * weight
    offset = from_first.sum(1) / valid.clamp(min=1)
    residual = (from_first - offset[:, None]) * weight
    variance = residual.square().sum(1) / (valid - 1).clamp(min=1)

    others_with_variance = sum_of_others((valid >= 2).to(rewards.dtype), 0).clamp(min=1)
    within = sum_of_others(variance / valid.clamp(min=1), 0) / others_with_variance
    other_prompts, loo_batch_mean, between = _other_means(first[:, 0], offset, valid)
    return GroupStatistics(
        prompt_mean=first[:, 0] + offset,
        loo_prompt_mean=sum_of_others(rewards, 1) / (valid[:, None] - weight).clamp(min=1),
        loo_batch_mean=loo_batch_mean,
        within_variance=within,
        between_variance=between,
        shrinkage=other_prompts / (other_prompts + 1) * ratio(within, within + between),
        reward_variance=variance,
        other_reward_variance=sum_of_others(variance, 0) / others_with_variance,
        valid_responses=valid,
        other_prompts=other_prompts,
    )


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


def _other_means(first: Tensor, offset: Tensor, valid: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return number, mean and population variance of the other prompts' means `first + offset`.

    The moments before i and after i are merged as in Chan, Golub and LeVeque (1983).
    """
    present = (valid > 0).to(offset.dtype)
    count_a, origin_a, mean_a, squares_a = _moments_before(first, offset, present)
    count_b, origin_b, mean_b, squares_b = (
        moment.flip(0) for moment in _moments_before(first.flip(0), offset.flip(0), present.flip(0))
    )
    count = count_a + count_b
    at_least_one = count.clamp(min=1)
    gap = (origin_a - origin_b) + (mean_a - mean_b)
    squares = squares_a + squares_b + count_a * count_b / at_least_one * gap.square()
    mean = (count_a * (origin_a + mean_a) + count_b * (origin_b + mean_b)) / at_least_one
    return count, mean, squares / at_least_one


def _moments_before(
    first: Tensor, offset: Tensor, present: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return number, origin, mean from the origin, and squared deviations of the earlier prompts.

    The origin is the first prompt's reward. It belongs to every set that is not empty, so that no
    set can lie far from it in units of its own spread.
    """
    origin = first[present.argmax(0, keepdim=True)]
    position = ((first - origin) + offset) * present
    count = _sum_before(present, 0)
    mean = _sum_before(position, 0) / count.clamp(min=1)
    squares = (_sum_before(position.square(), 0) - count * mean.square()).clamp(min=0)
    return count, origin.expand_as(mean), mean, squares
