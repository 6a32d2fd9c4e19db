"""Options that many functions share mean the same in each: the call in a function's own example is
made again with them."""

import copy
import dataclasses
import doctest
import importlib
import inspect

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from test_docs import public_functions

WITH_INTERVALS = (
    "cohen_kappa",
    "fit_judge_aware",
    "gwet_ac",
    "icc",
    "krippendorff_alpha",
    "rate_writers",
)
WITHOUT_DIALOGUES = (
    "cohen_kappa",
    "fit_ratings",
    "gwet_ac",
    "icc",
    "krippendorff_alpha",
    "read_verdicts",
    "read_votes",
)
"""Functions whose example has none; their own tests name the cluster."""

WITH_FILES = ("load_verdicts",)
# their own tests try `dimension`
NOT_OF_ONE_TABLE_OF_VERDICTS = (
    "icc",
    "train_judge",
    "calibrate_judge",
    "words_of_record",
    "check_seekers",
)


def with_option(option):
    """Each function that takes it by name alone."""
    taken = {
        name: inspect.signature(function).parameters.get(option)
        for name, function in public_functions()
    }
    return [name for name, option in taken.items() if option and option.kind is option.KEYWORD_ONLY]


def last(name):
    return name.rpartition(".")[2]


def example_call(name):
    """The last call of a function in its example: the function, and copies of what it was given."""
    module, _, what = name.rpartition(".")
    home = importlib.import_module(module)
    function, made = getattr(home, what), []

    def spy(*given, **options):
        made.append(copy.deepcopy((given, options)))
        return function(*given, **options)

    [test] = doctest.DocTestFinder(recurse=False).find(
        function, what, home, globs={**vars(home), what: spy}
    )
    flags = doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL | doctest.ELLIPSIS
    failed, _ = doctest.DocTestRunner(optionflags=flags).run(test, out=lambda _: None)
    assert not failed
    return function, *made[-1]


def called(function, given, options, **others):
    given, options = copy.deepcopy((given, options))
    return function(*given, **options | others)


def tables(result):
    """Each table in what a function gave, and its other fields as one more."""
    if isinstance(result, pd.DataFrame):
        return [result]
    if isinstance(result, Axes):
        return [pd.DataFrame(line.get_xydata(), columns=["x", "y"]) for line in result.lines]
    fields = vars(result) if dataclasses.is_dataclass(result) else result
    rest = {name: value for name, value in fields.items() if isinstance(value, int | float | str)}
    return [
        pd.DataFrame([rest]),
        *(value for value in fields.values() if isinstance(value, pd.DataFrame)),
    ]


@pytest.mark.parametrize("name", with_option("ax"))
def test_a_plot_draws_into_the_axes_it_is_given(name):
    from matplotlib import pyplot as plt

    function, given, options = example_call(name)
    _, (ax, other) = plt.subplots(1, 2)
    assert called(function, given, options, ax=ax) is ax
    assert ax.has_data() or ax.texts
    assert not other.has_data()
    assert not other.texts
    plt.close("all")


@pytest.mark.parametrize(
    "name", [name for name in with_option("ci_level") if last(name) in WITH_INTERVALS]
)
def test_a_lower_level_gives_a_narrower_interval(name):
    function, given, options = example_call(name)
    many = {"n_resamples": 200} if "n_resamples" in inspect.signature(function).parameters else {}
    widths = []
    for level in (0.5, 0.95):
        found = [
            t
            for t in tables(called(function, given, options, ci_level=level, **many))
            if {"ci_low", "ci_high"} <= set(t)
        ]
        widths.append(np.concatenate([(t["ci_high"] - t["ci_low"]).to_numpy(float) for t in found]))
    assert np.isfinite(widths[1]).any()
    there = np.isfinite(widths[1])
    assert (widths[0][there] <= widths[1][there]).all()
    assert (widths[0][there] < widths[1][there]).any()


@pytest.mark.parametrize(
    "name", [name for name in with_option("cluster") if last(name) not in WITHOUT_DIALOGUES]
)
def test_what_is_resampled_together_may_stand_in_another_column(name):
    function, given, options = example_call(name)
    renamed = tuple(
        t.rename(columns={"dialogue_id": "topic"}) if isinstance(t, pd.DataFrame) else t
        for t in given
    )
    assert any("topic" in t for t in renamed if isinstance(t, pd.DataFrame))
    here, there = (
        called(function, given, options),
        called(function, renamed, options, cluster="topic"),
    )
    for one, other in zip(tables(here), tables(there), strict=True):
        pd.testing.assert_frame_equal(one, other.rename(columns={"topic": "dialogue_id"}))


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in with_option("dimension")
        if last(name) not in (*WITH_FILES, *NOT_OF_ONE_TABLE_OF_VERDICTS)
    ],
)
def test_a_line_of_the_rubric_is_judged_by_its_own_rows_alone(name):
    function, given, options = example_call(name)
    verdicts, *others = given[0].assign(dimension="overall"), *given[1:]
    other = verdicts.assign(verdict=verdicts["verdict"].replace({"a": "b", "b": "a"}))
    mixed = [pd.concat([verdicts.assign(dimension="warmth"), other], ignore_index=True), *others]
    here, there = (
        called(function, given, options),
        called(function, mixed, options, dimension="warmth"),
    )
    for one, other in zip(tables(here), tables(there), strict=True):
        pd.testing.assert_frame_equal(
            one.replace("overall", "warmth"), other.replace("overall", "warmth")
        )


@pytest.mark.parametrize(("option", "value"), [("n_resamples", 1000), ("ci_level", 0.95)])
def test_one_default_serves_all(option, value):
    """Two tables side by side in a report have intervals of one kind, unless the user asks for
    another."""
    found = {
        name: inspect.signature(function).parameters.get(option)
        for name, function in public_functions()
    }
    given = {
        name: one.default
        for name, one in found.items()
        if one and one.default is not one.empty and ".simulate." not in name
    }
    assert "heart_utils.ratings.ratings.fit_ratings" in given
    assert {name: default for name, default in given.items() if default != value} == {}
