"""What the pages of functions promise: words for all, no parameter that is gone, and examples where readers call."""

import ast
import importlib
import inspect
import pkgutil

import pytest
from numpydoc.docscrape import FunctionDoc

import heart_utils
from heart_utils.runs import find_root
from tools.notebooks import read_cells

MODULES = sorted(
    name
    for _, name, is_package in pkgutil.walk_packages(heart_utils.__path__, "heart_utils.")
    if not is_package and not name.endswith("__main__")
)


def public_functions():
    """Each function that a module offers, by the name under which it stands on the pages of functions."""
    for name in MODULES:
        module = importlib.import_module(name)
        for what in module.__all__:
            if inspect.isfunction(offered := getattr(module, what)) and offered.__module__ == name:
                yield f"{name}.{what}", offered


def called_by_readers():
    """What the package names, and what a chapter imports."""
    found = [getattr(heart_utils, name) for name in heart_utils.__all__]
    for notebook in sorted((find_root() / "notebooks").glob("*.ipynb")):
        sources = [cell["source"] for cell in read_cells(notebook) if cell["cell_type"] == "code"]
        lines = [line for source in sources for line in source.splitlines() if not line.startswith(("%", "!"))]
        for node in ast.walk(ast.parse("\n".join(lines))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("heart_utils"):
                found += [getattr(importlib.import_module(node.module), alias.name) for alias in node.names]
    return sorted({one for one in found if inspect.isfunction(one)}, key=lambda one: f"{one.__module__}.{one.__name__}")


def documented(function):
    return [
        name.lstrip("*") for entry in FunctionDoc(function)["Parameters"] for name in entry.name.replace(" ", "").split(",")
    ]


@pytest.mark.parametrize("name", MODULES)
def test_a_module_says_what_it_offers_and_each_of_it_has_words(name):
    module = importlib.import_module(name)
    assert module.__doc__
    silent = [what for what in module.__all__ if callable(getattr(module, what)) and not inspect.getdoc(getattr(module, what))]
    assert silent == []


def test_a_documented_parameter_is_there_and_none_beside_it_is_left_out():
    drifted = {}
    for name, function in public_functions():
        said, there = documented(function), list(inspect.signature(function).parameters)
        if said and sorted(said) != sorted(there):
            drifted[name] = sorted({*said} ^ {*there})
    assert drifted == {}


def test_a_function_that_readers_call_says_what_it_takes_and_gives_and_has_an_example():
    lacking = {}
    for function in called_by_readers():
        sections, signature = FunctionDoc(function), inspect.signature(function)
        lacks = [] if sections["Examples"] else ["Examples"]
        lacks += ["Parameters"] if signature.parameters and not sections["Parameters"] else []
        gives = signature.return_annotation not in (None, "None", inspect.Signature.empty)
        lacks += ["Returns"] if gives and not (sections["Returns"] or sections["Yields"]) else []
        if lacks:
            lacking[f"{function.__module__}.{function.__name__}"] = lacks
    assert lacking == {}
