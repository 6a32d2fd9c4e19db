"""What the pages of functions promise: words and examples for all, and no parameter that is
gone."""

import doctest
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from numpydoc.docscrape import FunctionDoc, NumpyDocString

import heart_collect
import heart_utils
from heart_utils.ratings import resampling
from heart_utils.runs import find_root

MODULES = sorted(
    name
    for package in (heart_utils, heart_collect)
    for _, name, is_package in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    if not is_package and not name.endswith("__main__")
)


TYPE_WITH_A_SENTENCE = re.compile(
    r"; |, (?!optional\b|[\w.]+ or |[\w.]+$|\S+[\]}\"])|\b(which|whose|whether|from|that|such as)\b"
)
HOMES = re.compile(r"/(?:home|root|work|Users|tmp)/")


@pytest.fixture(scope="module")
def types():
    """The extension of the book that sets types."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(find_root() / "book" / "extensions"))
        yield importlib.import_module("heart_types")


def public_functions():
    """Each function that a module offers, by the name under which it stands on the pages of
    functions."""
    for name in MODULES:
        module = importlib.import_module(name)
        for what in module.__all__:
            if inspect.isfunction(offered := getattr(module, what)) and offered.__module__ == name:
                yield f"{name}.{what}", offered


def test_a_function_says_what_it_takes_and_gives_and_has_an_example(types):
    """Parameters stand in the order of the signature: who calls without names must not hand one
    argument over as another. Behind a colon is a type; the sentence is in the lines below."""
    faults = []
    for name, function in public_functions():
        page, signature = FunctionDoc(function), inspect.signature(function)
        documented = page["Parameters"]
        names = [part.lstrip("*") for one in documented for part in one.name.split(", ")]
        with_types = types.add_types(inspect.getdoc(function).splitlines(), function)
        set_types = [one.type for one in NumpyDocString("\n".join(with_types))["Parameters"]]
        gives = signature.return_annotation not in (None, "None", inspect.Signature.empty)
        faulty = {
            "parameters": names != list(signature.parameters),
            "types": not all(set_types),
            "a type with a sentence": any(TYPE_WITH_A_SENTENCE.search(t.type) for t in documented),
            "no words": not all("".join(one.desc).strip() for one in documented),
            "example": not page["Examples"] or HOMES.search("".join(page["Examples"])),
            "returns": gives and not (page["Returns"] or page["Yields"]),
        }
        faults += [(name, fault) for fault, holds in faulty.items() if holds]
    assert faults == []


def test_types_and_defaults_are_written_as_a_reader_knows_them(types):
    assert types.write_type("Sequence[pd.DataFrame] | None", {}) == (
        "Sequence[pandas.DataFrame], optional"
    )
    assert types.write_type("Rng", vars(resampling)) == "numpy.random.Generator, optional"
    assert types.write_type('Literal["a", "b"]', {}) == '{"a", "b"}'
    lines = ["How many are shown."]
    name = "heart_collect.judging.recipe.Recipe.budget_usd"
    types.write_types(None, "attribute", name, None, None, lines)
    assert lines == ["``float, optional``: How many are shown."]
    signature = f"(run, words='{'Say it. ' * 20}', unit='reply', files=<factory>)"
    short, _ = types.shorten_signature(None, "class", "x", None, None, signature)
    assert short == "(run, words='...', unit='reply', files=...)"
    assert types.shorten_signature(None, "function", "x", None, None, None) == (None, None)


@pytest.mark.parametrize("name", MODULES)
def test_an_example_runs_after_the_imports_that_the_pages_name_and_no_other(name):
    module = importlib.import_module(name)
    offered = {what: getattr(module, what) for what in module.__all__} | {
        "np": np,
        "pd": pd,
        "Path": Path,
    }
    said = []
    for example in doctest.DocTestFinder(exclude_empty=True).find(module, name):
        example.globs = {"__name__": "__main__", **offered}
        runner = doctest.DocTestRunner(
            optionflags=doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
        )
        runner.run(example, out=said.append)
    plt.close("all")
    assert "".join(said) == ""
