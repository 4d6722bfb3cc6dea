"""How far the policy has moved since each prompt's last visit: what spo forgets by."""

from types import SimpleNamespace

import pytest
import torch
from openrlhf.trainer.ppo_utils.experience import Experience

from openrlhf_js.plugin.memory import LastVisits
from openrlhf_js.plugin.upstream import BadInput

M = 2
PAD = 0
KEYS = torch.tensor([7, 9])
# prompt and response of each of two prompts with two responses, in tokens
SEQUENCES = [[5, 6, 1, 2], [5, 6, 3], [4, 8, 8, 8, 8], [4, 1]]
PROMPT_LENGTHS = [2, 2, 1, 1]


class Policy:
    """An actor group whose log-probability of a token is minus the token times a number."""

    def __init__(self):
        self.scale = 0.1
        self.passes = 0
        self.rounding = 0.0  # by which a second score of the same tokens differs

    def log_probs(self, sequences):
        return -self.scale * sequences[:, 1:].float()

    def maker(self):
        """As much of the experience maker as is asked for."""
        flags = SimpleNamespace(
            rollout=SimpleNamespace(n_samples_per_prompt=M),
            train=SimpleNamespace(colocate_all=False, colocate_actor_ref=False),
            ds=SimpleNamespace(ring_attn_size=1, tensor_parallel_size=1),
        )
        return SimpleNamespace(
            args=flags,
            tokenizer=SimpleNamespace(pad_token_id=PAD),
            actor_model_group=self,
            _dispatch_forward=self.forward,
            _flatten_results=lambda results, copies: results,
        )

    def forward(self, group, synchronous, sequences, action_mask, attention_mask):
        assert group is self
        for tokens, actions, real in zip(sequences, action_mask, attention_mask, strict=True):
            assert actions.shape[1] == tokens.shape[1] - 1
            assert torch.equal(real.bool(), tokens != PAD)
        self.passes += 1
        return [self.log_probs(tokens) + self.rounding for tokens in sequences]

    def step(self, order=(0, 1, 2, 3), sequences=SEQUENCES):
        """The micro-batches of a step, two responses each."""
        singles = []
        for number in order:
            tokens = torch.tensor([sequences[number]])
            actions = torch.arange(1, tokens.shape[1])[None] >= PROMPT_LENGTHS[number]
            singles.append(
                Experience(
                    sequences=tokens,
                    attention_mask=torch.ones_like(tokens),
                    action_mask=actions,
                    action_log_probs=self.log_probs(tokens),
                    index=[number],
                )
            )
        return [Experience.concat_experiences(singles[start : start + 2], PAD) for start in (0, 2)]


def test_the_first_visit_has_no_drift_and_costs_no_pass():
    policy = Policy()
    drift = LastVisits().replace(policy.maker(), policy.step(), KEYS)
    assert drift.tolist() == [0.0, 0.0]
    assert policy.passes == 0


def test_drift_is_the_mean_change_of_the_last_responses_tokens():
    policy = Policy()
    visits = LastVisits()
    visits.replace(policy.maker(), policy.step(), KEYS)
    policy.scale = 0.15
    others = [[5, 6, 9, 9, 9], [5, 6, 9], [4, 9], [4, 9, 9, 9, 9, 9]]
    moved = policy.step(order=(3, 0, 2, 1), sequences=others)
    drift = visits.replace(policy.maker(), moved, KEYS)
    # the first prompt's former responses are 1, 2 and 3; the second's 8, 8, 8, 8 and 1
    assert drift.tolist() == pytest.approx([0.05 * 6 / 3, 0.05 * 33 / 5])
    assert policy.passes == 1
    policy.scale = 0.16
    again = visits.replace(policy.maker(), policy.step(), KEYS)
    assert again.tolist() == pytest.approx([0.09, 0.09])


def test_a_new_prompt_among_known_ones_has_no_drift():
    policy = Policy()
    visits = LastVisits()
    visits.replace(policy.maker(), policy.step(), KEYS)
    policy.scale = 0.2
    policy.rounding = -0.01
    drift = visits.replace(policy.maker(), policy.step(), torch.tensor([7, 11]))
    assert drift[0] == pytest.approx(0.21)
    assert drift[1] == 0


def test_responses_to_images_are_refused():
    policy = Policy()
    experiences = policy.step()
    experiences[1].mm_train_inputs = [{"pixel_values": torch.zeros(1)}, None]
    with pytest.raises(BadInput, match="not built for images"):
        LastVisits().replace(policy.maker(), experiences, KEYS)
