"""Replicas of one model and models with weights are told apart by their names."""

from __future__ import annotations

import pytest

from openrlhf_js.plugin.errors import BadInput
from openrlhf_js.plugin.reward_urls import parse

A, B, C = (f"http://{host}:5000/get_reward" for host in "abc")


def problems(addresses: list[str], weights: str | None = None) -> list[str]:
    with pytest.raises(BadInput) as caught:
        parse(addresses, weights)
    return str(caught.value).splitlines()


def test_addresses_without_names_are_servers_of_one_model():
    assert parse([A], None) == [("", 1.0, (A,))]
    assert parse([A, B], None) == [("", 1.0, (A, B))]


def test_names_tell_models_apart():
    sources = parse([f"help={A}", f"harm={C}", f"help={B}"], "help=0.8,harm=-0.2")
    assert sources == [("help", 0.8, (A, B)), ("harm", -0.2, (C,))]
    assert parse([f"help={A}", f"help={B}"], None) == [("help", 1.0, (A, B))]


def test_space_after_a_comma_is_no_part_of_an_address_or_name():
    assert parse([A, f" {B} "], None) == [("", 1.0, (A, B))]
    sources = parse([f"help={A}", f" harm={C}"], "help=0.8, harm=-0.2")
    assert sources == [("help", 0.8, (A,)), ("harm", -0.2, (C,))]


def test_an_equals_sign_in_an_address_is_no_name():
    url = "http://a/get_reward?model=b"
    assert parse([url], None) == [("", 1.0, (url,))]


@pytest.mark.parametrize(
    ("addresses", "weights", "said"),
    [
        ([A, f"help={B}"], None, "some addresses have a name"),
        ([f"help={A}", f"harm={B}"], None, "give one NAME=NUMBER for each"),
        ([f"help={A}", f"harm={B}"], "help=1", "(help, harm)"),
        ([f"help={A}", f"harm={B}"], "help=1,harm=1,art=1", "(help, harm)"),
        ([A, B], "a=1,b=1", "have no names"),
        ([A], "1", "must be NAME=NUMBER"),
        ([f"help={A}"], "help=0", "not 0"),
        ([f"help={A}"], "help=nan", "finite"),
        ([f"help={A}"], "help=1e999", "finite"),
        ([f"help={A}"], "help=one", "must be NAME=NUMBER"),
        ([f"help={A}"], "help=1,help=2", "help comes twice"),
        ([A, A], None, "an address comes twice"),
        (["ftp://a/x"], None, "neither a Python file (.py) nor an http(s) address"),
        (["http:///get_reward"], None, "neither"),
        ([""], None, "neither"),
        (["help="], None, "neither"),
        (["http://a:99999/x"], None, "is no address"),
        (["http://[::1/x"], None, "is no address"),
        (["http://me:secret@a/x"], None, "OPENRLHF_JS_REWARD_TOKEN"),
    ],
)
def test_what_cannot_be_meant_is_said(addresses, weights, said):
    (line,) = problems(addresses, weights)
    assert said in line


def test_all_problems_come_at_once():
    assert len(problems(["ftp://a", "http://b:x/"], "a=b")) == 3
