r"""js_grad: a regression baseline, weighted by what counts in the variance of the gradient.

With s_ij = grad log pi(y_ij | x_i), w_ij = |s_ij|^2, and a baseline that does not use
response (i, j),

    n^2 m^2 E |g - grad J|^2 = sum_ij E[w_ij (r_ij - b_ij)^2] + terms in |grad J_i|^2,

so a baseline should predict rewards by least squares with these weights. js_grad is a weighted
linear regression of a response's reward on what else is known about its prompt:

    b_ij = R_{-i} + alpha_ij (x_ij - X_{-i}) + beta_ij (z_ij - Z_{-i})

    x_ij = (sum_{l != j} w_il r_il + kappa t) / (sum_{l != j} w_il + kappa)
    z_ij = (sum_past u r + PRIOR x_ij) / (sum_past u + PRIOR)

x_ij is the weighted mean reward of the prompt's other responses. z_ij is that of its responses in
earlier steps, where u is w divided by the mean weight, discounted at every visit; without a past it
is x_ij. R, X and Z are the weighted means of rewards, x and z, and alpha and beta the slopes within
[0, 1] of the least squared error. All are taken over the batch's other prompts and earlier steps
together; the latter count as at most PAST_PROMPTS prompts. RLOO_PROMPTS imaginary prompts are
added, with this x_ij and z_ij and the reward that RLOO would predict, R + x_ij - X. They weigh as
much as the group's other responses, so a prompt unlike the others relies on itself. kappa is PRIOR
times the mean weight, and t the weighted mean reward, both from earlier steps.

b_ij does not use response (i, j), so the gradient is unbiased. If the first batch has a single
valid response, its baseline is its own reward.

alpha = 1 is rloo; alpha = beta = 0 is bloo, weighted. With equal weights and no past, 1 - alpha
estimates the same quantity as the paper's coefficient. Derivation and measurements:
docs/js_grad.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from openrlhf_js.estimators.batch import Batch
from openrlhf_js.estimators.group_stats import ratio, sum_of_others
from openrlhf_js.estimators.record import Estimator, TableMemory

if TYPE_CHECKING:
    from torch import Tensor

PRIOR = 0.25  # times the mean weight of a response: how much t counts in x, and x in z
RLOO_PROMPTS = 1.5  # imaginary prompts added to the others, with alpha = 1
PAST_PROMPTS = 64.0
KEPT = 0.7  # factor on a prompt's past responses at each visit
STATE = ("origin", "moments", "squares", "responses")
ROUNDING = 1e-12  # times the rewards' mean square: a smaller variance counts as 0
COLLINEAR = 1e-9  # if 1 - correlation^2 of x and z is smaller, z counts as collinear


class Moments(NamedTuple):
    """Weighted sums over the responses of some prompts: (n,) sets of prompts, or one set ()."""

    products: Tensor
    """(..., 4, 4) sum of w f f^T, with f = (1, x, z, r)."""
    squares: Tensor
    """(...,) sum over prompts of W_k^2, where W_k is the weight of a prompt's responses."""

    def plus(self, other: Moments) -> Moments:
        """The sums over both sets of prompts."""
        return Moments(self.products + other.products, self.squares + other.squares)

    @property
    def prompts(self) -> Tensor:
        """(...,) the effective number of prompts: (sum W_k)^2 / sum W_k^2."""
        return ratio(self.products[..., 0, 0].square(), self.squares)

    def in_prompts(self) -> Tensor:
        """(..., 4, 4) the sums, scaled so that the first is the effective number of prompts."""
        scale = ratio(self.products[..., 0, 0], self.squares)
        return scale[..., None, None] * self.products


class Earlier(NamedTuple):
    """What earlier steps tell about a batch of n prompts; `moments` measures rewards from
    `origin`."""

    origin: Tensor
    """() the mean reward of the first step; differences from it keep more digits."""
    moments: Moments
    """Of the earlier steps."""
    mean_weight: Tensor
    """() mean weight of a response."""
    past_weight: Tensor
    """(n,) sum of u over each prompt's earlier responses, discounted; 0 if it has none."""
    past_reward: Tensor
    """(n,) sum of u r over them."""

    @property
    def mean_reward(self) -> Tensor:
        """() t, the weighted mean of the earlier steps' rewards."""
        return ratio(self.moments.products[0, 3], self.moments.products[0, 0])


def grad_baseline(batch: Batch) -> Tensor:
    """(n, m) b_ij; the formula is above.

    Works for any number of prompts and responses. Without earlier steps kappa is 0 and there is no
    z. The baseline is then x_ij for the only prompt of a batch, the mean of the other prompts for
    the only response of a group, and the own reward (advantage 0) for a response that is both. With
    earlier steps one prompt with one response is enough. Masked responses never count; those of
    weight 0 count in a mean only if there is nothing else.
    """
    origin = _origin(batch)
    responses = _responses(batch, origin)
    line = _line_of_others(batch, responses)
    baseline = line.at(responses.x, responses.z)
    if batch.past is None:
        rewards = responses.rewards
        baseline = baseline.where(responses.has_x, _mean_of_other_prompts(batch, rewards, origin))
    return origin + baseline


def describe_line(batch: Batch) -> dict[str, Tensor]:
    """Means over a batch of the slopes alpha and beta."""
    origin = _origin(batch)
    responses = _responses(batch, origin)
    line = _line_of_others(batch, responses)
    counted = batch.mask | ~batch.mask.any()
    return {
        "js/slope_group": line.alpha[counted].mean(),
        "js/slope_past": line.beta[counted].mean(),
    }


class _Line(NamedTuple):
    """A regression line: means (n, 1) of rewards, x and z, and slopes (n, m)."""

    reward: Tensor
    x: Tensor
    z: Tensor
    alpha: Tensor
    beta: Tensor

    def at(self, x: Tensor, z: Tensor) -> Tensor:
        """(n, m) predictions."""
        return self.reward + self.alpha * (x - self.x) + self.beta * (z - self.z)


def _line_of_others(batch: Batch, responses: _Responses) -> _Line:
    """The line of each prompt, fitted to the other prompts and to earlier steps."""
    # a response without an x carries no information about the line
    known = _moments(responses, responses.weights * responses.has_x, sum_of_others)
    if batch.past is not None:
        known = known.plus(batch.past.moments)
    rloo_prompts = RLOO_PROMPTS * _relative_weight(batch)
    return _line(known.in_prompts(), responses.x, responses.z, rloo_prompts)


def _relative_weight(batch: Batch) -> Tensor:
    """(n, m) mean weight of the group's other responses divided by that of responses elsewhere,
    without those of weight 0."""
    weighs = (batch.weights > 0).to(batch.weights.dtype)
    own_weight = sum_of_others(batch.weights, 1)
    own_count = sum_of_others(weighs, 1)
    weight = sum_of_others(batch.weights.sum(1), 0)
    count = sum_of_others(weighs.sum(1), 0)
    elsewhere = ratio(weight, count)[:, None]
    if batch.past is not None:
        elsewhere = batch.past.mean_weight.where(batch.past.mean_weight > 0, elsewhere)
    return ratio(own_weight, own_count * elsewhere)


class _Responses(NamedTuple):
    """The responses of a batch as the regression sees them, (n, m) each."""

    weights: Tensor
    rewards: Tensor
    x: Tensor
    z: Tensor
    has_x: Tensor
    """False where x does not exist and is set to 0."""


def _responses(batch: Batch, origin: Tensor) -> _Responses:
    """The batch's responses, with rewards, x and z counted from the origin."""
    rewards = (batch.rewards - origin) * batch.mask
    if batch.past is None:
        return _of_today_alone(batch, rewards)
    return _with_a_past(batch, batch.past, rewards, origin)


def _of_today_alone(batch: Batch, rewards: Tensor) -> _Responses:
    """x is the weighted mean of the group's other responses, or the plain one if they have no
    weight."""
    weight = sum_of_others(batch.weights, 1)
    total = sum_of_others(batch.weights * rewards, 1)
    others = sum_of_others(batch.mask.to(rewards.dtype), 1)
    plain_mean = ratio(sum_of_others(rewards, 1), others)
    x = ratio(total, weight).where(weight > 0, plain_mean)
    return _Responses(batch.weights, rewards, x, z=x, has_x=others > 0)


def _with_a_past(batch: Batch, past: Earlier, rewards: Tensor, origin: Tensor) -> _Responses:
    """x is shrunk to t, the mean reward of earlier steps, and z to x."""
    kappa = PRIOR * past.mean_weight
    weight = sum_of_others(batch.weights, 1) + kappa
    total = sum_of_others(batch.weights * rewards, 1) + kappa * past.mean_reward
    x = (total / weight).where(weight > 0, past.mean_reward)
    z = _shrunk_past(past, x, origin)
    return _Responses(batch.weights, rewards, x, z, has_x=batch.mask.new_ones(batch.mask.shape))


def _shrunk_past(past: Earlier, x: Tensor, origin: Tensor) -> Tensor:
    """(n, m) z_ij; without a past it is exactly x_ij, as the regression requires."""
    weight = past.past_weight[:, None]
    total = past.past_reward[:, None] - origin * weight
    z = (total + PRIOR * x) / (weight + PRIOR)
    return z.where(weight > 0, x)


def _origin(batch: Batch) -> Tensor:
    """() a typical reward; differences from it keep more digits."""
    if batch.past is not None:
        return batch.past.origin
    means = batch.statistics.prompt_mean.detach()
    exists = batch.statistics.valid_responses > 0
    return means.where(exists, float("nan")).nanmedian().nan_to_num()


def _moments(
    responses: _Responses, weights: Tensor, total: Callable[[Tensor, int], Tensor]
) -> Moments:
    """Sums over prompts: `total` is `torch.sum` for all, or `sum_of_others` for the others of
    each."""
    import torch

    ones = torch.ones_like(responses.x)
    features = torch.stack([ones, responses.x, responses.z, responses.rewards], -1)
    weighted = weights[..., None] * features
    of_prompts = weighted.transpose(1, 2) @ features
    return Moments(products=total(of_prompts, 0), squares=total(of_prompts[:, 0, 0].square(), 0))


def _line(moments: Tensor, x: Tensor, z: Tensor, rloo_prompts: Tensor) -> _Line:
    """The lines for responses with x and z (n, m), from sums (n, 4, 4) over what else is known.

    With S the sums of squares and products about the means, d = x_ij - x, e = z_ij - z, and K
    `rloo_prompts`, the slopes solve

        (S_xx + K d d) alpha + (S_xz + K d e) beta = S_xr + K d d
        (S_xz + K d e) alpha + (S_zz + K e e) beta = S_zr + K e d
    """
    mean = ratio(moments[:, 0], moments[:, 0, :1])
    sums = moments - moments[:, :1, :1] * mean[:, :, None] * mean[:, None, :]
    mean_x, mean_z, mean_reward = (mean[:, place, None] for place in (1, 2, 3))
    distance_x = x - mean_x
    distance_z = z - mean_z
    rloo = rloo_prompts * distance_x
    alpha, beta = _slopes(
        xx=sums[:, 1, 1, None] + rloo * distance_x,
        xz=sums[:, 1, 2, None] + rloo * distance_z,
        zz=sums[:, 2, 2, None] + rloo_prompts * distance_z.square(),
        xr=sums[:, 1, 3, None] + rloo * distance_x,
        zr=sums[:, 2, 3, None] + rloo * distance_z,
        rounding=ROUNDING * moments[:, 3, 3, None],  # x and z are mean rewards
    )
    return _Line(mean_reward, mean_x, mean_z, alpha, beta)


def _slopes(
    *, xx: Tensor, xz: Tensor, zz: Tensor, xr: Tensor, zr: Tensor, rounding: Tensor
) -> tuple[Tensor, Tensor]:
    """alpha and beta (n, m) within [0, 1] of the least error, from sums about the means.

    alpha is 1 where x does not vary; beta is 0 where z does not vary, or is collinear with x.
    """
    x_varies = xx > rounding
    z_varies = zz > rounding
    xx = xx.where(x_varies, 1.0)
    zz = zz.where(z_varies, 1.0)
    xz = xz.where(x_varies & z_varies, 0.0)
    z_adds = z_varies & (xz.square() < (1 - COLLINEAR) * xx * zz)
    xz = xz.where(z_adds, 0.0)
    zr = zr.where(z_adds, 0.0)
    alpha, beta = _least_error_in_unit_square(xx=xx, xz=xz, zz=zz, xr=xr, zr=zr)
    return alpha.where(x_varies, 1.0), beta.where(z_adds, 0.0)


def _least_error_in_unit_square(
    *, xx: Tensor, xz: Tensor, zz: Tensor, xr: Tensor, zr: Tensor
) -> tuple[Tensor, Tensor]:
    """The alpha and beta (n, m) in [0, 1] with the least

        xx alpha^2 + 2 xz alpha beta + zz beta^2 - 2 (xr alpha + zr beta).

    It lies where it does without bounds, if that is inside, or else on one of the four edges.

    Clipping both slopes of the unbounded fit would not do. Where few prompts have a past, only
    these tell alpha and beta apart. Errors of the two cancel elsewhere, where z is x; after
    clipping one of them they would not.
    """
    import torch

    determinant = xx * zz - xz.square()
    alphas = [(zz * xr - xz * zr) / determinant]
    betas = [(xx * zr - xz * xr) / determinant]
    for bound in (0.0, 1.0):
        edge = torch.full_like(xx, bound)
        alphas += [edge, ((xr - bound * xz) / xx).clamp(0, 1)]
        betas += [((zr - bound * xz) / zz).clamp(0, 1), edge]
    alpha = torch.stack(alphas)  # (5, n, m)
    beta = torch.stack(betas)
    of_alpha = xx * alpha.square() - 2 * xr * alpha
    of_beta = zz * beta.square() - 2 * zr * beta
    error = of_alpha + of_beta + 2 * xz * alpha * beta
    outside = (alpha != alpha.clamp(0, 1)) | (beta != beta.clamp(0, 1))
    best = error.masked_fill(outside, torch.inf).argmin(0, keepdim=True)
    return alpha.gather(0, best)[0], beta.gather(0, best)[0]


def _mean_of_other_prompts(batch: Batch, rewards: Tensor, origin: Tensor) -> Tensor:
    """(n, m) weighted mean reward of the other prompts, or the plain one if they have no weight;
    the own reward if there is no other prompt. All are measured from the origin."""
    weight = sum_of_others(batch.weights.sum(1), 0)
    total = sum_of_others((batch.weights * rewards).sum(1), 0)
    plain_mean = batch.statistics.loo_batch_mean - origin
    mean = ratio(total, weight).where(weight > 0, plain_mean)
    exists = batch.statistics.other_prompts > 0
    return mean[:, None].where(exists[:, None], rewards)


class Memory(TableMemory):
    """The moments of earlier steps, and for each prompt with a key the sums over its responses."""

    columns: ClassVar = {"weight": (), "reward": ()}

    def __init__(self) -> None:
        import torch

        super().__init__()
        self.origin = torch.zeros((), dtype=torch.float64)
        self.moments = torch.zeros(4, 4, dtype=torch.float64)
        self.squares = torch.zeros((), dtype=torch.float64)
        self.responses = torch.zeros((), dtype=torch.float64)

    def recall(self, batch: Batch) -> Earlier | None:
        """What earlier steps tell about a batch; None before the first."""
        if not self._knows_anything:
            return None
        past_weight = past_reward = batch.rewards.new_zeros(len(batch.rewards))
        if batch.keys is not None:
            past_weight = self.table.get("weight", batch, 0.0)
            past_reward = self.table.get("reward", batch, 0.0)
        moments = Moments(self.moments, self.squares)
        return Earlier(
            origin=self.origin.to(batch.rewards),
            moments=Moments._make(sums.to(batch.rewards) for sums in moments),
            mean_weight=ratio(self.moments[0, 0], self.responses).to(batch.rewards),
            past_weight=past_weight,
            past_reward=past_reward,
        )

    @property
    def _knows_anything(self) -> bool:
        return bool(self.responses) or len(self.table) > 0

    def learn(self, batch: Batch) -> None:
        """Adds a batch, after its advantages are computed."""
        import torch

        if not (batch.weights > 0).any():
            return
        self._choose_origin(batch)
        responses = _responses(batch, self.origin.to(batch.rewards))
        today = _moments(responses, responses.weights, torch.sum)
        known = Moments(self.moments, self.squares).plus(
            Moments._make(sums.cpu() for sums in today)
        )
        kept = (PAST_PROMPTS / known.prompts).clamp(max=1)
        self.moments = kept * known.products
        self.squares = kept * known.squares
        self.responses = kept * (self.responses + (batch.weights > 0).sum().cpu())
        if batch.keys is not None:
            self._learn_prompts(batch, ratio(self.moments[0, 0], self.responses))

    def _choose_origin(self, batch: Batch) -> None:
        if not self._knows_anything:
            mean = (batch.weights * batch.rewards).sum() / batch.weights.sum()
            self.origin = mean.cpu()

    def _learn_prompts(self, batch: Batch, mean_weight: Tensor) -> None:
        """Adds the responses of each prompt to its past; a prompt may be in a batch twice."""
        from openrlhf_js.estimators.memory import keys_of

        answered = batch.mask.any(1).cpu()
        keys = keys_of(batch)[answered]
        self.table.insert(keys.unique())
        rows = self.table.place(keys)
        visited = rows.unique()
        columns = self.table.columns
        relative = batch.weights.cpu() / mean_weight
        rewards = relative * batch.rewards.cpu()
        for name, values in (("weight", relative), ("reward", rewards)):
            columns[name][visited] *= KEPT
            columns[name].index_add_(0, rows, values.sum(1)[answered])

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint holds."""
        own = {name: getattr(self, name) for name in STATE}
        return own | super().state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the state from a checkpoint."""
        for name in STATE:
            setattr(self, name, state[name].cpu())
        super().load_state_dict(state)


JS_GRAD = Estimator(
    name="js_grad",
    summary="weighted regression on the prompt's other responses, today's and earlier ones; the "
    "weights are the squared lengths of the score gradients",
    source="docs/js_grad.md",
    unbiased=True,
    baseline=grad_baseline,
    describe=describe_line,
    reads_score_norms=True,
    remembers_prompts=True,
    memory=Memory,
)
