from __future__ import annotations

import copy
import inspect
import re

import pytest

from penrose_ray import errors
from penrose_ray.errors import ConfigError, PenroseError
from penrose_ray.transport.uploader import BusyError

ALL = [each for _, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, PenroseError)]


def test_codes_and_exit_codes_are_unique_and_codes_are_anchors() -> None:
    codes = [each.code for each in ALL]
    exits = [each.exit_code for each in ALL]

    assert len(ALL) > 20
    assert len(set(codes)) == len(codes)
    assert len(set(exits)) == len(exits)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", code) for code in codes)
    assert all(0 < code < 126 for code in exits)


@pytest.mark.parametrize("kind", ALL)
def test_an_error_reaches_another_process_whole(kind: type[PenroseError]) -> None:
    rebuilt = copy.copy(
        kind("The disk is full.", remedy="Free it.")
    )  # copies through __reduce__, as pickling does

    assert type(rebuilt) is kind
    assert (rebuilt.message, rebuilt.remedy) == ("The disk is full.", "Free it.")
    assert str(rebuilt) == "The disk is full. Free it."


def test_what_a_subclass_adds_is_not_lost_on_the_way() -> None:
    rebuilt = copy.copy(BusyError("Busy.", remedy="Wait.", retry_after_s=17.5))

    assert rebuilt.retry_after_s == 17.5


def test_an_error_names_its_place_in_the_documentation() -> None:
    assert ConfigError("x", remedy="y").docs == "docs/exit-codes.md#config"


def test_an_error_without_a_remedy_ends_with_its_message() -> None:
    assert str(ConfigError("It broke.", remedy="")) == "It broke."
