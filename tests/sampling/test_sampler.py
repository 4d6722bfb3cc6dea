"""The one sampler, of an engine in this process and of a server."""

import base64

import pytest
from kit import save_figures, save_seeing_policy
from passk_kit import CONTEXT, write_model
from stub_judge import by_seed, reply, serving

from openrlhf_js.common.model_folders import local_folder
from openrlhf_js.sampling.endpoint import Endpoint, NoReply
from openrlhf_js.sampling.models import model_files, model_fingerprint
from openrlhf_js.sampling.sampler import (
    LocalSampler,
    Parameters,
    Request,
    Sampled,
    ServedSampler,
    messages_of,
    model_differences,
)
from openrlhf_js.sampling.settings import EngineSettings, SamplingSettings

PARAMETERS = Parameters(1.0, 1.0, 6, 3)
CPU = {"device": "cpu", "engine": "transformers"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("model"))


def request(number, draw=0, text="ab"):
    return Request("u", number, draw, [{"role": "user", "content": text}])


def sampled(sampler, requests, parameters=PARAMETERS):
    found = {}
    sampler.make_room(requests, parameters)
    sampler.run(
        requests,
        parameters,
        lambda batch: found.update({(r.number, r.draw): each for r, each in batch}),
    )
    return found


def texts(found):
    return {place: each.text for place, each in found.items()}


def test_samples_do_not_depend_on_their_batch_or_order(folder):
    wanted = [request(i, j, "abc"[: i % 3 + 1]) for i in range(4) for j in range(3)]
    found = {
        rows: texts(
            sampled(LocalSampler(EngineSettings(batch_size=rows, **CPU), str(folder)), order)
        )
        for rows, order in ((1, wanted), (5, wanted[::-1]), (64, wanted))
    }
    assert found[1] == found[5] == found[64]
    assert len({*found[1].values()}) > 4
    other = LocalSampler(EngineSettings(**CPU), str(folder))
    assert texts(sampled(other, wanted, PARAMETERS._replace(seed=4))) != found[1]


def test_what_a_sample_says_of_itself(folder):
    sampler = LocalSampler(EngineSettings(**CPU), str(folder))
    for each in sampled(sampler, [request(0, draw) for draw in range(30)]).values():
        assert "<eos>" not in each.text
        assert each.finish_reason == ("stop" if each.tokens < 6 else each.finish_reason)
        assert each.tokens <= 6
    greedy = sampled(sampler, [request(0, j) for j in range(3)], PARAMETERS._replace(temperature=0))
    assert len({*texts(greedy).values()}) == 1


def test_a_prompt_that_is_too_long_is_refused_alone(folder):
    found = sampled(
        LocalSampler(EngineSettings(**CPU), str(folder)), [request(0), request(1, 0, "a" * CONTEXT)]
    )
    assert found[0, 0].text
    assert isinstance(found[1, 0], NoReply) and found[1, 0].refused


def test_the_chat_template_where_there_is_one(folder):
    sampler = LocalSampler(EngineSettings(**CPU), str(folder))
    system = request(0)._replace(
        messages=[{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]
    )
    assert sampler.identity["prompt_form"] == "text"
    assert sampler._prompts([system])[0].text == "a\n\nb"
    with pytest.raises(ValueError, match="no chat template; take --prompt_form text"):
        LocalSampler(EngineSettings(**CPU), str(folder), "chat")
    with pytest.raises(ValueError, match="need a model that sees and its chat template"):
        sampled(sampler, [request(0)._replace(images=["a.png"])])


def test_thoughts_that_the_template_opens_are_part_of_the_text(folder, tmp_path):
    thinking = write_model(tmp_path)
    template = "{% for m in messages %}{{ m['content'] }}{% endfor %}{{ '<think>\\n' }}"
    (thinking / "chat_template.jinja").write_text(template)
    sampler = LocalSampler(EngineSettings(**CPU), str(thinking))
    assert sampler.identity["prompt_form"] == "chat"
    assert sampled(sampler, [request(0)])[0, 0].text.startswith("<think>")


def test_a_served_model_is_known_by_what_it_serves():
    """Two checkpoints at one address and of one name; vLLM's `created` is the time of the call."""

    def checkpoint(weights):
        return lambda request, _: reply(f"{weights} {request['messages'][-1]['content']}")

    with serving(checkpoint("first")) as served:
        first, again = (ServedSampler(Endpoint(served.url).connect()) for _ in range(2))
        served.answer = checkpoint("second")
        second = ServedSampler(Endpoint(served.url).connect())
        trusted = ServedSampler(Endpoint(served.url).connect(), same_model=True)
        served.answer = lambda *_: (400, b"temperature must be 1")
        no_greedy = ServedSampler(Endpoint(served.url).connect())
    assert model_differences(first.identity, again) == []
    differences = model_differences(first.identity, second)
    assert len(differences) == 4 and all("the greedy answer to" in each for each in differences)
    assert model_differences(first.identity, trusted) == []
    assert no_greedy.identity["greedy_answers"] == {}
    assert model_differences(first.identity, no_greedy) == []
    elsewhere = {**first.identity, "url": "http://other/v1", "served_root": "runs/b"}
    assert model_differences(elsewhere, first) == ["served_root was 'runs/b' and is ''"]
    at_first = {**first.identity, "greedy_answers": "0123456789abcdef"}
    assert model_differences(at_first, first) == []


def test_a_served_prompt_that_is_refused():
    def picky(request, number):
        return (413, b"") if request["messages"][0]["content"] == "b" else by_seed(request, number)

    with serving(picky) as served:
        sampler = ServedSampler(Endpoint(served.url).connect(), concurrency=1)
        found = sampled(sampler, [request(i, j, "abc"[i]) for i in range(3) for j in range(4)])
    assert all(each.refused == (number == 1) for (number, _), each in found.items()
               if isinstance(each, NoReply))  # fmt: skip
    assert sum(isinstance(each, Sampled) for each in found.values()) == 8
    assert (sampler.identity["served_model"], sampler.identity["url"]) == ("small", served.url)


def test_images_stand_where_the_text_says(tmp_path):
    paths = [tmp_path / "a.png", tmp_path / "b.jpg"]
    for path in paths:
        path.write_bytes(path.name.encode())
    asked = request(0, 0, "<image> How wide? <image>")._replace(images=list(map(str, paths)))
    (message,) = messages_of(asked)
    first, text, second = message["content"]
    assert text == {"type": "text", "text": " How wide? "}
    encoded = base64.b64encode(b"a.png").decode()
    assert first["image_url"] == {"url": f"data:image/png;base64,{encoded}"}
    assert second["image_url"]["url"].startswith("data:image/jpeg;base64,")
    with pytest.raises(ValueError, match="has 1 images, and 2 times <image>"):
        messages_of(asked._replace(images=["a.png"]))
    with pytest.raises(FileNotFoundError):
        messages_of(asked._replace(images=["/no/a.png", "/no/b.png"]))


def test_an_engine_in_this_process_sees_images(tmp_path):
    model, figures = str(save_seeing_policy(tmp_path / "model")), save_figures(tmp_path)
    shown = [request(i, j, f"{'abc'[i:]}<image>") for i in range(3) for j in range(3)]
    shown = [each._replace(images=[figures[each.number % 2]]) for each in shown]
    wanted = [*shown, request(3, 0, "abc")]
    parameters = PARAMETERS._replace(max_new_tokens=16)
    found = {
        rows: texts(
            sampled(LocalSampler(EngineSettings(batch_size=rows, **CPU), model), order, parameters)
        )
        for rows, order in ((1, wanted), (64, wanted[::-1]))
    }
    assert found[1] == found[64] and len({*found[1].values()}) > 6
    sampler = LocalSampler(EngineSettings(**CPU), model)
    first, second = (
        sampled(sampler, [shown[0]._replace(images=[path])], parameters)[0, 0] for path in figures
    )
    assert first.text != second.text
    with pytest.raises(ValueError, match="has 1 images, and 0 times <image>"):
        sampler.make_room([request(0)._replace(images=figures[:1])], parameters)
    with pytest.raises(FileNotFoundError, match=r"/no/a\.png"):
        sampler.make_room([shown[0]._replace(images=["/no/a.png"])], parameters)


def test_models_and_their_fingerprints(folder, tmp_path):
    assert local_folder(folder) == folder
    found = model_files(folder)
    assert (found.context, found.ends()) == (CONTEXT, (1,))
    same, other = write_model(tmp_path / "same"), write_model(tmp_path / "other", seed=1)
    prints = [model_fingerprint(each) for each in (folder, same, other)]
    assert prints[0] == prints[1] != prints[2]
    (same / "tokenizer.json").write_text("{}")
    assert model_fingerprint(same) != prints[0]
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "config.json").write_bytes((folder / "config.json").read_bytes())
    with pytest.raises(ValueError, match="is not a model that loads: it has no tokenizer"):
        model_files(bare)
    with pytest.raises(ValueError, match="is not a model that loads"):
        model_files(tmp_path)


def test_a_hub_id_that_is_none(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ValueError, match="is not a folder here, and the hub does not give it"):
        local_folder("no/such-model-" + "x" * 100)


def test_settings_name_device_dtype_and_engine():
    settings = SamplingSettings(device="cpu")
    assert (settings.device_name, settings.dtype_name) == ("cpu", "float32")
    assert (settings.engine_name, settings.rows) == ("transformers", 64)
    assert SamplingSettings(dtype="bf16", batch_size=3).dtype_name == "bfloat16"
    assert SamplingSettings(batch_size=3, **CPU).rows == 3
