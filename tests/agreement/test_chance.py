import ast

import krippendorff
import numpy as np
import pandas as pd
import pytest
from agreement_tables import scores, votes
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score
from statsmodels.stats import inter_rater

from heart_utils.agreement.kappa import answer_sheet, cohen_kappa, gwet_ac, krippendorff_alpha
from heart_utils.ratings.verdicts import AgreementError, read_votes

ALONE = {"cluster": None, "n_resamples": 0}
N = None

# Krippendorff (2011), Computing Krippendorff's Alpha-Reliability, examples A to E; observers are
# columns here.
TWO_BINARY = list(zip([0, 1, 0, 0, 0, 0, 0, 0, 1, 0], [1, 1, 1, 0, 0, 1, 0, 0, 0, 0], strict=True))
TWO_NOMINAL = list(
    zip([1, 1, 2, 2, 4, 3, 3, 3, 5, 4, 4, 1], [2, 1, 2, 2, 2, 3, 3, 3, 5, 4, 4, 4], strict=True)
)
FOUR_OBSERVERS = [
    [1, 1, N, 1], [2, 2, 3, 2], [3, 3, 3, 3], [3, 3, 3, 3], [2, 2, 2, 2], [1, 2, 3, 4],
    [4, 4, 4, 4], [1, 1, 2, 1], [2, 2, 2, 2], [N, 5, 5, 5], [N, N, 1, 1], [N, N, 3, N],
]  # fmt: skip


@pytest.mark.parametrize(
    ("sheet", "level", "printed"),
    [
        (TWO_BINARY, "nominal", 0.095),
        (TWO_NOMINAL, "nominal", 0.692),
        (FOUR_OBSERVERS, "nominal", 0.743),
        (FOUR_OBSERVERS, "ordinal", 0.815),
        (FOUR_OBSERVERS, "interval", 0.849),
    ],
)
def test_alpha_matches_krippendorffs_printed_examples(sheet, level, printed):
    assert krippendorff_alpha(scores(sheet), level=level, **ALONE).value == pytest.approx(
        printed, abs=5e-4
    )


@pytest.mark.parametrize(
    ("coefficient", "settings", "printed"),
    [
        (gwet_ac, {}, 0.77544),
        (krippendorff_alpha, {}, 0.74342),
    ],
)
def test_coefficients_match_gwets_printed_example_of_four_raters(coefficient, settings, printed):
    """Gwet (2014), Handbook of Inter-Rater Reliability, 4th edition, p.

    120; values as his R package irrCAC prints them.
    """
    assert coefficient(scores(FOUR_OBSERVERS), **settings, **ALONE).value == pytest.approx(
        printed, abs=5e-6
    )


@pytest.fixture(scope="module")
def abstractors():
    """Gwet's two abstractors and three kinds of pregnancy (irrCAC's cont3x3abstractors), as 100
    units."""
    table = {(1, 1): 13, (2, 2): 20, (2, 3): 7, (3, 2): 4, (3, 3): 56}
    return scores([pair for pair, times in table.items() for _ in range(times)])


@pytest.mark.parametrize(
    ("coefficient", "printed"),
    [(cohen_kappa, 0.7964094), (gwet_ac, 0.8493305), (krippendorff_alpha, 0.7972585)],
)
def test_coefficients_match_gwets_printed_example_of_two_raters(abstractors, coefficient, printed):
    assert coefficient(abstractors, **ALONE).value == pytest.approx(printed, abs=5e-8)


def test_coefficients_match_gwets_printed_example_of_six_psychiatrists():
    """Fleiss' 30 patients, the 15 that irrCAC's distrib.6raters holds: AC1 .4448007, alpha
    .4204384."""
    counts = [
        [0, 0, 0, 6, 0], [0, 3, 0, 0, 3], [0, 1, 4, 0, 1], [0, 0, 0, 0, 6], [0, 3, 0, 3, 0], [2, 0, 4, 0, 0], [0, 0, 4, 0, 2],
        [2, 0, 3, 1, 0], [2, 0, 0, 4, 0], [0, 0, 0, 0, 6], [1, 0, 0, 5, 0], [1, 1, 0, 4, 0], [0, 3, 3, 0, 0], [1, 0, 0, 5, 0],
        [0, 2, 0, 3, 1],
    ]  # fmt: skip
    table = scores([np.repeat(np.arange(5), row) for row in counts])
    found = [coefficient(table, **ALONE).value for coefficient in (gwet_ac, krippendorff_alpha)]
    assert found == pytest.approx([0.4448007, 0.4204384], abs=5e-8)


@settings(max_examples=10)
@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=3, max_size=25))
def test_kappa_is_scikit_learns_and_statsmodels(pairs):
    one, two = map(np.array, zip(*pairs, strict=True))
    assume(len(np.unique([one, two])) > 1 and not (len(np.unique(one)) == len(np.unique(two)) == 1))
    table = scores(pairs)
    scale = list(range(1, 6))
    for weights in (None, "linear", "quadratic"):
        found = cohen_kappa(table, weights=weights, **ALONE).value
        assert found == pytest.approx(
            cohen_kappa_score(one, two, weights=weights, labels=scale), abs=1e-9
        )
    counted = np.zeros((5, 5))
    np.add.at(counted, (one - 1, two - 1), 1)
    assert cohen_kappa(table, **ALONE).value == pytest.approx(
        inter_rater.cohens_kappa(counted, return_results=False), abs=1e-9
    )


@settings(max_examples=20)
@given(
    sheet=st.lists(
        st.lists(st.one_of(st.none(), st.integers(1, 4)), min_size=3, max_size=3),
        min_size=3,
        max_size=12,
    ),
    level=st.sampled_from(["nominal", "ordinal", "interval"]),
)
def test_alpha_is_the_krippendorff_packages(sheet, level):
    answered = [row for row in sheet if sum(cell is not None for cell in row) >= 2]
    assume(len({cell for row in answered for cell in row if cell is not None}) > 1)
    reference = krippendorff.alpha(
        reliability_data=np.array(sheet, dtype=float).T, level_of_measurement=level
    )
    assert krippendorff_alpha(scores(sheet), level=level, **ALONE).value == pytest.approx(
        reference, abs=1e-9
    )


@pytest.mark.mirror
def test_kappas_of_experts_match_the_published_table(mirror):
    """62 of 63 follow with the whole scale; in the other nobody gave a 4, and it follows when 4 is
    no category."""
    from heart_utils.sources.load import load_scores

    ratings = load_scores("empathic_comm")
    published = pd.read_csv(mirror / "empathic_comm_judges" / "table_kappa.csv")
    pairs = published["Annotator Pair"].map(ast.literal_eval)
    published = published[
        pairs.map(lambda pair: all(name[:-1] == "expert" for name in pair))
    ].assign(pair=pairs)
    assert len(published) == 63
    odd = []
    for row in published.itertuples():
        table = ratings[(ratings["dimension"] == row.Dimension) & ratings["rater"].isin(row.pair)]
        if (
            abs(cohen_kappa(table, weights="quadratic", n_resamples=0).value - row[4])
            > 0.005 + 1e-9
        ):
            odd.append((row.Dimension, *row.pair))
    assert odd == [("self_oriented", "expert1", "expert2")]
    table = ratings[
        (ratings["dimension"] == "self_oriented") & ratings["rater"].isin(["expert1", "expert2"])
    ]
    assert 4.0 not in set(table["score"])
    by_rank = table.assign(score=table["score"].rank(method="dense"))
    assert cohen_kappa(table, weights="quadratic", n_resamples=0).value == pytest.approx(
        0.786, abs=5e-4
    )
    assert cohen_kappa(by_rank, weights="quadratic", n_resamples=0).value == pytest.approx(
        0.82, abs=5e-3
    )


def test_kappa_falls_where_nearly_all_answers_are_the_same_and_ac1_does_not():
    """Agreement is 96 in 100 both times; what changes is how common the rarer answer is."""
    even = scores([(1, 1)] * 48 + [(5, 5)] * 48 + [(1, 5)] * 2 + [(5, 1)] * 2)
    skewed = scores([(5, 5)] * 96 + [(1, 5)] * 2 + [(5, 1)] * 2)
    assert cohen_kappa(even, **ALONE).value == pytest.approx(0.92)
    assert gwet_ac(even, **ALONE).value == pytest.approx(0.92)
    # Both say 1 of 2 in 100: p_e = .98^2 + .02^2 = .9608, kappa = (.96 - .9608) / .0392.
    assert cohen_kappa(skewed, **ALONE).value == pytest.approx(-0.0008 / 0.0392)
    # pi = .02: p_e = 2 * .02 * .98 = .0392, AC1 = (.96 - .0392) / .9608.
    assert gwet_ac(skewed, **ALONE).value == pytest.approx(0.9208 / 0.9608)


def test_verdicts_are_symmetrised_since_a_and_b_are_names_without_meaning():
    # p says a, a, a, tie; m says a, a, b, tie. Turned round and averaged: margins 3/8, 1/4, 3/8.
    table = votes(
        [
            (f"x-y/{k}", "d", who, LABEL[said])
            for k, pair in enumerate(["aa", "aa", "ab", "tt"])
            for who, said in zip("pm", pair, strict=True)
        ]
    )
    chance = 2 * (3 / 8) ** 2 + (1 / 4) ** 2
    assert cohen_kappa(table, n_resamples=0).value == pytest.approx((3 / 4 - chance) / (1 - chance))
    # A tie lies between: by squares it costs a quarter, and two answers drawn from the margins lose
    # 2 * (3/4) / 4 on average.
    assert cohen_kappa(table, weights="quadratic", n_resamples=0).value == pytest.approx(
        (3 / 4 - 5 / 8) / (1 - 5 / 8)
    )
    swapped = table.assign(responder_a=table["responder_b"], responder_b=table["responder_a"])
    assert (
        krippendorff_alpha(swapped, n_resamples=0).value
        == krippendorff_alpha(table, n_resamples=0).value
    )


LABEL = {"a": "a", "b": "b", "t": "tie"}


@settings(max_examples=10)
@given(seed=st.integers(0, 10_000))
def test_names_of_raters_and_the_order_of_rows_change_nothing(seed):
    rng = np.random.default_rng(seed)
    sheet = rng.integers(1, 4, (8, 3)).astype(float)
    assume(len(np.unique(sheet)) > 1)
    table = scores(sheet)
    other = table.assign(rater=table["rater"].map({"0": "z", "1": "y", "2": "x"})).sample(
        frac=1, random_state=seed
    )
    for coefficient in (gwet_ac, krippendorff_alpha):
        assert coefficient(table, **ALONE).value == pytest.approx(coefficient(other, **ALONE).value)


def test_intervals_resample_clusters_with_all_that_is_in_them(rng):
    """Copies of a unit within its cluster bring no information: the interval stays as wide."""
    sheet = rng.integers(1, 3, (60, 2))
    table = scores(sheet).assign(dialogue_id=lambda rows: rows["reply_id"])
    copies = pd.concat([table.assign(reply_id=table["reply_id"] + f"/{k}") for k in range(4)])
    once, often = (gwet_ac(part, rng=np.random.default_rng(1)) for part in (table, copies))
    assert (often.ci_low, often.ci_high) == pytest.approx((once.ci_low, once.ci_high))
    assert gwet_ac(copies, cluster="reply_id").ci_low > once.ci_low


def test_resamples_with_one_category_are_left_out_and_counted():
    sheet = [(1, 1)] * 59 + [(1, 2)]
    found = krippendorff_alpha(scores(sheet), cluster="reply_id", n_resamples=300)
    assert 80 < found.n_undefined < 140  # (59/60)^60 = .365 of 300 lack the one unit that differs
    assert found.ci_low <= found.value <= found.ci_high


def test_coefficients_never_exceed_one_nor_do_their_intervals(rng):
    sheet = np.repeat(rng.integers(1, 4, (9, 1)), 2, axis=1)
    sheet[0, 1] = 4
    assert krippendorff_alpha(scores(sheet), cluster="reply_id").ci_high <= 1.0


BAD = {
    "one rater": (gwet_ac, [[1], [2]], {}, "needs two raters or more"),
    "no unit shared": (gwet_ac, [[1, N], [N, 2]], {}, "share no unit"),
    "one category": (krippendorff_alpha, [[2, 2], [2, 2]], {}, "All answers are 2: agreement is 1"),
    "three raters": (
        cohen_kappa,
        [[1, 2, 1], [2, 2, 1]],
        {},
        "is of two raters; the table holds 3",
    ),
    "weights unknown": (
        cohen_kappa,
        [[1, 2], [2, 1]],
        {"weights": "cubic"},
        "weights must be 'linear' or 'quadratic'",
    ),
    "a level unknown": (
        krippendorff_alpha,
        [[1, 2], [2, 1]],
        {"level": "cardinal"},
        "level must be one of nominal",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_has_no_coefficient_is_refused_with_a_reason(case):
    coefficient, sheet, settings, message = BAD[case]
    with pytest.raises(AgreementError, match=message):
        coefficient(scores(sheet), **settings, **ALONE)


def test_several_dimensions_are_not_one():
    table = pd.concat(
        [scores([[1, 2], [2, 2]]).assign(dimension=name) for name in ("empathy", "safety")]
    )
    with pytest.raises(AgreementError, match="several dimensions \\(empathy, safety\\)"):
        gwet_ac(table, **ALONE)


def test_a_repeated_score_is_refused():
    table = pd.concat([scores([[1, 2]])] * 2, ignore_index=True)
    with pytest.raises(AgreementError, match="more than once"):
        gwet_ac(table, **ALONE)


def test_verdicts_without_ties_have_two_categories():
    """Equal on three pairs of four; chance is a half, whichever of the two authors is called a."""
    said = {"p": "aaab", "m": "aabb"}
    rows = [
        (f"d{k}", "x", "y", rater, word)
        for rater, words in said.items()
        for k, word in enumerate(words)
    ]
    table = pd.DataFrame(
        rows, columns=["pair_id", "responder_a", "responder_b", "rater", "verdict"]
    )
    for coefficient in (cohen_kappa, gwet_ac):
        assert coefficient(table, cluster=None, n_resamples=0).value == pytest.approx(
            (3 / 4 - 1 / 2) / (1 / 2)
        )
    # Alpha: six of eight answers meet an equal one; two answers drawn from 4 a and 4 b differ in 4
    # of 7.
    assert krippendorff_alpha(table, cluster=None, n_resamples=0).value == pytest.approx(
        1 - (1 / 4) / (4 / 7)
    )


def test_a_sheet_of_verdicts_has_a_tie_halfway_and_gaps_where_nobody_answered():
    rows = [("x-y", "d", "p1", "a"), ("x-y", "d", "p2", "tie"), ("x-y", "e", "p1", "b")]
    np.testing.assert_array_equal(answer_sheet(read_votes(votes(rows))), [[1, 0], [-1, np.nan]])


def test_a_kappa_is_named_after_its_weights():
    names = [
        cohen_kappa(scores(TWO_NOMINAL), weights=weights, **ALONE).name
        for weights in (None, "linear")
    ]
    assert names == ["Cohen's kappa", "weighted kappa (linear)"]


def test_alpha_of_one_shared_unit_says_why_it_has_no_value():
    """nltk and fast-krippendorff give a bare nan here; Cohen's kappa was refused before."""
    rows = pd.DataFrame(
        {
            "reply_id": ["r", "r", "s", "t"],
            "rater": ["ann", "ben", "ann", "ben"],
            "score": [1, 1, 2, 3],
        }
    )
    for measure in (krippendorff_alpha, cohen_kappa):
        with pytest.raises(AgreementError, match="All answers are 1: .*one category only"):
            measure(rows, cluster=None)
    rows.loc[1, "score"] = 2
    assert krippendorff_alpha(rows, cluster=None, n_resamples=0).value == 0.0
