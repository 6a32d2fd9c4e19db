"""What the pages of functions promise: words and examples for all, and no parameter that is
gone."""

import doctest
import importlib
import inspect
import pkgutil
import re
from collections import Counter
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
from tools.flow import public_homes

MODULES = sorted(
    name
    for package in (heart_utils, heart_collect)
    for _, name, is_package in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    if not is_package and not name.endswith("__main__")
)


def public_functions():
    """Each function that a module offers, by the name under which it stands on the pages of
    functions."""
    for name in MODULES:
        module = importlib.import_module(name)
        for what in module.__all__:
            if inspect.isfunction(offered := getattr(module, what)) and offered.__module__ == name:
                yield f"{name}.{what}", offered


def documented(function):
    return [
        name.lstrip("*")
        for entry in FunctionDoc(function)["Parameters"]
        for name in entry.name.replace(" ", "").split(",")
    ]


@pytest.mark.parametrize("name", MODULES)
def test_a_module_says_what_it_offers_and_each_of_it_has_words(name):
    module = importlib.import_module(name)
    assert module.__doc__
    silent = [
        what
        for what in module.__all__
        if callable(getattr(module, what)) and not inspect.getdoc(getattr(module, what))
    ]
    assert silent == []


def test_parameters_are_documented_in_the_order_of_the_signature_and_none_is_left_out():
    """Who calls a function as its page reads, without names, must not hand one argument over as
    another."""
    drifted = {}
    for name, function in public_functions():
        on_the_page, in_the_signature = (
            documented(function),
            list(inspect.signature(function).parameters),
        )
        if on_the_page and on_the_page != in_the_signature:
            drifted[name] = (on_the_page, in_the_signature)
    assert drifted == {}


TYPE_WITH_A_SENTENCE = re.compile(
    r"; |, (?!optional\b|[\w.]+ or |[\w.]+$|\S+[\]}\"])|\b(which|whose|whether|from|that|such as)\b"
)


def test_what_is_behind_the_colon_of_a_parameter_is_its_type_and_no_sentence():
    """numpydoc sets it as a type; the sentence is in the lines below."""
    wrong = {
        (name, entry.name): entry.type
        for name, function in public_functions()
        for entry in FunctionDoc(function)["Parameters"]
        if TYPE_WITH_A_SENTENCE.search(entry.type) or not "".join(entry.desc).strip()
    }
    assert wrong == {}


def test_each_parameter_has_a_type_on_the_pages(monkeypatch):
    """From the docstring, or else from the annotation, as the extension of the book adds it."""
    monkeypatch.syspath_prepend(str(find_root() / "book" / "extensions"))
    add_types = importlib.import_module("heart_types").add_types
    untyped = [
        (name, entry.name)
        for name, function in public_functions()
        for entry in NumpyDocString(
            "\n".join(add_types(inspect.getdoc(function).splitlines(), function))
        )["Parameters"]
        if not entry.type
    ]
    assert untyped == []


def test_a_type_is_written_as_a_reader_knows_it(monkeypatch):
    monkeypatch.syspath_prepend(str(find_root() / "book" / "extensions"))
    write_type = importlib.import_module("heart_types").write_type
    assert write_type("Sequence[pd.DataFrame] | None", {}) == "Sequence[pandas.DataFrame], optional"
    assert write_type("Rng", vars(resampling)) == "numpy.random.Generator, optional"
    assert write_type('Literal["a", "b"]', {}) == '{"a", "b"}'


def test_a_field_of_a_class_has_its_type_on_the_pages(monkeypatch):
    monkeypatch.syspath_prepend(str(find_root() / "book" / "extensions"))
    lines = ["How many are shown."]
    name = "heart_collect.judging.recipe.Recipe.budget_usd"
    importlib.import_module("heart_types").write_types(None, "attribute", name, None, None, lines)
    assert lines == ["``float, optional``: How many are shown."]


def test_a_long_default_is_cut_in_a_signature_and_a_short_one_stays(monkeypatch):
    monkeypatch.syspath_prepend(str(find_root() / "book" / "extensions"))
    shorten = importlib.import_module("heart_types").shorten_signature
    signature = f"(run, words='{'Say it. ' * 20}', unit='reply', files=<factory>)"
    short, _ = shorten(None, "class", "x", None, None, signature)
    assert short == "(run, words='...', unit='reply', files=...)"
    assert shorten(None, "function", "x", None, None, None) == (None, None)


def test_a_function_says_what_it_takes_and_gives_and_has_an_example():
    lacking = {}
    for name, function in public_functions():
        sections, signature = FunctionDoc(function), inspect.signature(function)
        lacks = [] if sections["Examples"] else ["Examples"]
        lacks += ["Parameters"] if signature.parameters and not sections["Parameters"] else []
        gives = signature.return_annotation not in (None, "None", inspect.Signature.empty)
        lacks += ["Returns"] if gives and not (sections["Returns"] or sections["Yields"]) else []
        if lacks:
            lacking[name] = lacks
    assert lacking == {}


def test_an_example_names_no_folder_of_the_machine_it_was_written_on():
    homes = re.compile(r"/(?:home|root|work|Users|tmp)/")
    assert [
        name
        for name, function in public_functions()
        if homes.search("".join(FunctionDoc(function)["Examples"]))
    ] == []


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


def test_a_docstring_links_only_to_what_has_a_place_on_the_pages():
    offered = {what for name in MODULES for what in importlib.import_module(name).__all__}
    lost = set()
    for path in find_root().glob("heart_*/**/*.py"):
        links = re.findall(r":(?:func|class|exc):`~?([\w.]+)`", path.read_text())
        ours = {link for link in links if link.startswith("heart_") or "." not in link}
        lost |= {(path.name, link) for link in ours if link.split(".")[-1] not in offered}
    assert lost == set()


def test_see_also_names_what_the_pages_offer_and_says_what_it_does():
    """A name that means several things, such as a function and a field, is given with its module."""
    offered = [
        (what, getattr(importlib.import_module(name), what))
        for name in MODULES
        for what in importlib.import_module(name).__all__
    ]
    meanings = Counter(
        name
        for what, thing in offered
        for name in {what, *(vars(thing) if inspect.isclass(thing) else ())}
        | set(getattr(thing, "__annotations__", {}) if inspect.isclass(thing) else {})
    )
    lost = {
        (name, other)
        for name, function in public_functions()
        for others, words in FunctionDoc(function)["See Also"]
        for other, _ in others
        if other.split(".")[-1] not in dict(offered)
        or ("." not in other and meanings[other] > 1)
        or not "".join(words).strip()
    }
    assert lost == set()


def test_what_the_package_names_is_what_a_module_offers():
    strange = [
        name
        for name, home in public_homes().items()
        if name.rpartition(".")[2] not in importlib.import_module(home).__all__
    ]
    assert strange == []
