import torch
from transformers import Qwen2ForCausalLM

from openrlhf_js.tiny import evaluate, model
from openrlhf_js.tiny.preferences import TASK
from openrlhf_js.tiny.tasks import END


def test_padding_after_the_end_is_dropped_and_padding_that_was_said_is_not(tmp_path, monkeypatch):
    tokenizer = model.make_tokenizer(TASK)
    model.save(model.make_model(tokenizer, 0), tokenizer, tmp_path)
    responses = [
        ["h", "e", "a", END, model.PAD],
        ["h", model.PAD, "e", "a", END],
        ["h", "e", "a", "b", model.PAD],
    ]

    def say(self, input_ids, **_):
        said = torch.tensor([tokenizer.convert_tokens_to_ids(each) for each in responses])
        return torch.cat([input_ids.repeat_interleave(len(responses), 0), said], 1)

    monkeypatch.setattr(Qwen2ForCausalLM, "generate", say)
    texts = evaluate.sample_texts(tmp_path, TASK, ["hea"], samples=3, seed=0)
    assert texts == [[f"hea{END}", f"h{model.PAD}ea{END}", f"heab{model.PAD}"]]
    right, *wrong = evaluate.grade(TASK, ["hea"], texts)[0]
    assert right == 4.5
    assert max(wrong) < 4.5
