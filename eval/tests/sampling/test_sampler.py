"""The one sampler, of an engine in this process and of a server."""

import base64

import pytest
from kit import save_figures, save_seeing_policy
from passk_kit import CONTEXT, write_model
from stub_judge import by_seed, serving

from answer_graders import marks
from answer_graders.programs.model_folders import local_folder, model_fingerprint
from paired_eval.sampling.endpoint import Endpoint, NoReply
from paired_eval.sampling.models import model_files
from paired_eval.sampling.sampler import (
    LocalSampler,
    Parameters,
    Request,
    Sampled,
    ServedSampler,
    messages_of,
    model_differences,
)
from paired_eval.sampling.settings import EngineSettings

PARAMETERS = Parameters(temperature=1.0, top_p=1.0, max_new_tokens=6, seed=3)
GREEDY = PARAMETERS._replace(temperature=0)
LONGEST = PARAMETERS.max_new_tokens


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("model"))


def local(folder, prompt_form="auto", batch_size=None):
    settings = EngineSettings(device="cpu", engine="transformers", batch_size=batch_size)
    return LocalSampler(settings, str(folder), prompt_form)


def request(number, draw=0, text="ab", images=()):
    messages = [{"role": "user", "content": text}]
    return Request(f"uid {number}", number, draw, messages, images)


def sampled(sampler, requests, parameters=PARAMETERS):
    """The replies by number and draw."""
    replies = {}

    def keep(batch):
        for asked, sample in batch:
            replies[asked.number, asked.draw] = sample

    sampler.make_room(requests, parameters)
    sampler.run(requests, parameters, keep)
    return replies


def texts(sampler, requests, parameters=PARAMETERS):
    replies = sampled(sampler, requests, parameters)
    return {place: sample.text for place, sample in replies.items()}


def test_samples_do_not_depend_on_their_batch_or_order(folder):
    requests = []
    for number in range(4):
        text = "abc"[: number % 3 + 1]
        requests += [request(number, draw, text) for draw in range(3)]
    expected = texts(local(folder, batch_size=64), requests)
    assert texts(local(folder, batch_size=1), requests) == expected
    assert texts(local(folder, batch_size=5), requests[::-1]) == expected
    assert len(set(expected.values())) > 4
    other_seed = PARAMETERS._replace(seed=4)
    assert texts(local(folder), requests, other_seed) != expected


def test_what_a_sample_says_of_itself(folder):
    sampler = local(folder)
    for sample in sampled(sampler, [request(0, draw) for draw in range(30)]).values():
        assert "<eos>" not in sample.text
        assert sample.tokens <= LONGEST
        if sample.tokens < LONGEST:
            assert sample.finish_reason == "stop"
    greedy = texts(sampler, [request(0, draw) for draw in range(3)], GREEDY)
    assert len(set(greedy.values())) == 1


def test_a_prompt_that_is_too_long_is_refused_alone(folder):
    longest = "a" * (CONTEXT - LONGEST)
    replies = sampled(local(folder), [request(0, text=longest), request(1, text=f"{longest}a")])
    assert isinstance(replies[0, 0], Sampled)
    assert isinstance(replies[1, 0], NoReply)
    assert replies[1, 0].refused


def test_the_chat_template_where_there_is_one(folder):
    sampler = local(folder)
    messages = [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]
    conversation = request(0)._replace(messages=messages)
    assert sampler.identity["prompt_form"] == "text"
    assert sampler._prompts([conversation])[0].text == "a\n\nb"
    with pytest.raises(ValueError, match="no chat template; take --prompt_form text"):
        local(folder, prompt_form="chat")
    with pytest.raises(ValueError, match="need a model that sees and its chat template"):
        sampled(sampler, [request(0, images=["a.png"])])


def test_thoughts_that_the_template_opens_are_part_of_the_text(tmp_path):
    thinking = write_model(tmp_path)
    template = "{% for m in messages %}{{ m['content'] }}{% endfor %}{{ '<think>\\n' }}"
    (thinking / "chat_template.jinja").write_text(template)
    sampler = local(thinking)
    assert sampler.identity["prompt_form"] == "chat"
    assert texts(sampler, [request(0)])[0, 0].startswith("<think>")


def test_marks_that_only_the_template_knows(tmp_path, monkeypatch):
    monkeypatch.setattr(marks, "_named_marks", set())
    musing = write_model(tmp_path)
    template = (
        "{% for m in messages %}{% if m.reasoning_content %}<musing>{{ m.reasoning_content }}"
        "</musing>{% endif %}{{ m['content'] }}{% endfor %}"
        "{% if add_generation_prompt %}<musing>{% endif %}"
    )
    (musing / "chat_template.jinja").write_text(template)
    assert texts(local(musing), [request(0)])[0, 0].startswith("<musing>")
    assert marks.named_marks() == ("musing",)
    monkeypatch.undo()
    marks.name_marks([])


def test_a_served_model_is_known_by_what_it_serves():
    """vLLM's `created` is the time of the call, and says nothing."""
    with serving() as served:
        first = ServedSampler(Endpoint(served.url).connect())
        again = ServedSampler(Endpoint(served.url).connect())
        served.root = "runs/b"
        second = ServedSampler(Endpoint(served.url).connect())
        trusted = ServedSampler(Endpoint(served.url).connect(), same_model=True)
    assert model_differences(first.identity, again) == []
    assert model_differences(first.identity, second) == ["served_root was '' and is 'runs/b'"]
    assert model_differences(first.identity, trusted) == []
    elsewhere = {**first.identity, "url": "http://other/v1"}
    assert model_differences(elsewhere, first) == [
        f"url was 'http://other/v1' and is '{served.url}'"
    ]


def test_a_served_prompt_that_is_refused():
    def picky(asked, number):
        if asked["messages"][0]["content"] == "b":
            return 413, b""
        return by_seed(asked, number)

    requests = []
    for number, text in enumerate("abc"):
        requests += [request(number, draw, text) for draw in range(4)]
    with serving(picky) as served:
        sampler = ServedSampler(Endpoint(served.url).connect(), concurrency=1)
        replies = sampled(sampler, requests)
    for (number, _), sample in replies.items():
        if number == 1:
            assert isinstance(sample, NoReply)
            assert sample.refused
        else:
            assert isinstance(sample, Sampled)
    assert sampler.identity["served_model"] == "small"
    assert sampler.identity["url"] == served.url


def test_images_stand_where_the_text_says(tmp_path):
    png = tmp_path / "a.png"
    png.write_bytes(b"png")
    jpeg = tmp_path / "b.jpg"
    jpeg.write_bytes(b"jpeg")
    asked = request(0, text="<image> How wide? <image>", images=[str(png), str(jpeg)])
    (message,) = messages_of(asked)
    first, text, second = message["content"]
    assert text == {"type": "text", "text": " How wide? "}
    encoded = base64.b64encode(b"png").decode()
    assert first["image_url"] == {"url": f"data:image/png;base64,{encoded}"}
    assert second["image_url"]["url"].startswith("data:image/jpeg;base64,")
    with pytest.raises(ValueError, match="has 1 images, and 2 times <image>"):
        messages_of(asked._replace(images=["a.png"]))
    with pytest.raises(FileNotFoundError):
        messages_of(asked._replace(images=["/no/a.png", "/no/b.png"]))


def test_an_engine_in_this_process_sees_images(tmp_path):
    model = save_seeing_policy(tmp_path / "model")
    figures = save_figures(tmp_path)
    parameters = PARAMETERS._replace(max_new_tokens=16)
    requests = [request(3, text="abc")]
    for number in range(3):
        text = f"{'abc'[number:]}<image>"
        images = [figures[number % 2]]
        requests += [request(number, draw, text, images) for draw in range(3)]
    one_by_one = texts(local(model, batch_size=1), requests, parameters)
    assert texts(local(model, batch_size=64), requests[::-1], parameters) == one_by_one
    assert len(set(one_by_one.values())) > 6
    sampler = local(model)
    first, second = (
        texts(sampler, [request(0, text="abc<image>", images=[figure])], parameters)
        for figure in figures
    )
    assert first != second
    with pytest.raises(ValueError, match="has 1 images, and 0 times <image>"):
        sampler.make_room([request(0, images=figures[:1])], parameters)
    with pytest.raises(FileNotFoundError, match=r"/no/a\.png"):
        sampler.make_room([request(0, text="<image>", images=["/no/a.png"])], parameters)


def test_models_and_their_fingerprints(folder, tmp_path):
    assert local_folder(folder) == folder
    files = model_files(folder)
    assert files.context == CONTEXT
    assert files.ends() == (1,)
    same = write_model(tmp_path / "same")
    other = write_model(tmp_path / "other", seed=1)
    assert model_fingerprint(same) == model_fingerprint(folder)
    assert model_fingerprint(other) != model_fingerprint(folder)
    (same / "tokenizer.json").write_text("{}")
    assert model_fingerprint(same) != model_fingerprint(folder)


def test_folders_that_are_no_models(folder, tmp_path):
    with pytest.raises(ValueError, match=r"is not a model that loads: .* in its config\.json"):
        model_files(tmp_path)
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    with pytest.raises(ValueError, match="is not a model that loads: it has no tokenizer"):
        model_files(tmp_path)
