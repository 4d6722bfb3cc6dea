"""Thoughts earn no reward, as OpenRLHF asks for one."""

from thoughts import MARKS, rows

from answer_graders.rewards import reward_by_datasource, reward_function


def test_what_rewards_say_of_the_same():
    """A query ends as the tokenizer ends it, and the prompt may have opened the thought."""
    wrong = []
    for task, reply, reward in rows():
        alone = reward_function(task)([f"Q{reply}"], ["Q"], ["18"])["rewards"].tolist()
        mixed = reward_by_datasource([f"Q{reply}"], ["Q"], ["18"], [f"{task}/a"])
        if not alone == mixed["rewards"].tolist() == [reward]:
            wrong.append((task, reply, reward, alone))
    assert not wrong


def test_an_unclosed_thought_of_the_prompt_earns_nothing():
    for opening, closing in MARKS:
        prompt = f"Q {opening}\n"
        for reply, reward in (
            (r"\boxed{18}", 0),
            (rf"\boxed{{18}}{closing}", 0),
            (rf"{closing}\boxed{{18}}", 1),
        ):
            result = reward_function("math")([prompt + reply], [prompt], ["18"])
            assert result["rewards"].tolist() == [reward], (opening, reply)
