"""LoRA: merged weights, and what is refused."""

import pytest
import torch
from kit import noisy, qwen

from openrlhf_js.plugin import flags
from openrlhf_js.plugin.checks.models import model_problems
from openrlhf_js.plugin.flags.parser import upstream_parser
from openrlhf_js.plugin.learner.lora import merged_weight, refuse_tied


def with_lora(*targets: str, tied: bool = False):
    from peft import LoraConfig, get_peft_model

    how = {"task_type": "CAUSAL_LM", "r": 2, "lora_alpha": 6, "target_modules": list(targets)}
    model = noisy(qwen(vocab_size=30, tie_word_embeddings=tied))
    return get_peft_model(model, LoraConfig(**how))


# --- one matrix ---------------------------------------------------------------------------------


def test_a_merged_weight_by_hand():
    layer = with_lora("q_proj").base_model.model.model.layers[0].self_attn.q_proj
    with torch.no_grad():
        layer.base_layer.weight.fill_(1.0)
        layer.lora_A["default"].weight.copy_(torch.arange(32.0).reshape(2, 16))
        layer.lora_B["default"].weight.fill_(1.0)
        merged = merged_weight(layer)
    # alpha / r = 3 times the sum of A's two rows, in every row
    expected = 1 + 3 * (torch.arange(16.0) + torch.arange(16.0, 32.0))
    assert torch.equal(merged, expected.expand(16, 16))
    assert torch.equal(layer.base_layer.weight, torch.ones(16, 16))


def test_an_adapter_on_tied_embeddings_is_refused():
    refuse_tied(with_lora("q_proj", "lm_head"))
    refuse_tied(with_lora("q_proj", tied=True))
    for end in ("embed_tokens", "lm_head"):
        with pytest.raises(ValueError, match="leave out embed_tokens and lm_head"):
            refuse_tied(with_lora("q_proj", end, tied=True))


# --- flags --------------------------------------------------------------------------------------


def test_all_linear_is_no_name_of_a_module():
    parse = upstream_parser().parse_args
    for line, expected in {
        "": "all-linear",
        "--ds.lora.target_modules all-linear": "all-linear",
        "--ds.lora.target_modules q_proj v_proj": ["q_proj", "v_proj"],
    }.items():
        assert vars(parse(line.split()))["ds.lora.target_modules"] == expected


@pytest.mark.parametrize("more", ["--ds.load_in_4bit", "--ds.tensor_parallel_size 2"])
def test_what_does_not_work_with_lora_is_refused(more):
    parser = upstream_parser()
    flags.add_flags(parser)
    line = f"--actor.model_name_or_path org/name {more}"
    assert list(model_problems(vars(parser.parse_args(line.split())))) == []
    lora = parser.parse_args([*line.split(), "--ds.lora.rank", "8"])
    (problem,) = model_problems(vars(lora))
    assert problem.startswith(f"--ds.lora.rank does not work with {more.split()[0]}")
