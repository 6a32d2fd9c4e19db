"""Coefficients of agreement: printed examples, other programs, values by hand, real data."""

import ast

import krippendorff
import numpy as np
import pandas as pd
import pingouin
import pytest
from agreement_tables import SHROUT_FLEISS, expanded_percentiles, scores, votes
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score
from statsmodels.stats import inter_rater

from heart_utils.agreement.agreement import (
    cohen_kappa,
    gwet_ac,
    icc,
    judge_reliability,
    krippendorff_alpha,
)
from heart_utils.ratings.resampling import draw_weights
from heart_utils.ratings.verdicts import AgreementError
from heart_utils.runs import find_root
from heart_utils.simulate.study import Panel, simulate_study

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


# Gwet's two abstractors and three kinds of pregnancy (irrCAC's cont3x3abstractors), as 100 units.
PREGNANCIES = {(1, 1): 13, (2, 2): 20, (2, 3): 7, (3, 2): 4, (3, 3): 56}
ABSTRACTORS = [pair for pair, times in PREGNANCIES.items() for _ in range(times)]
# Of Fleiss' 30 patients and six psychiatrists the 15 that irrCAC's distrib.6raters holds.
PSYCHIATRISTS = [np.repeat(np.arange(5), list(map(int, row))) for row in [
    "00060", "03003", "01401", "00006", "03030", "20400", "00402", "20310", "20040", "00006",
    "10050", "11040", "03300", "10050", "02031",
]]  # fmt: skip


@pytest.mark.parametrize(
    ("coefficient", "sheet", "options", "printed", "off"),
    [
        (krippendorff_alpha, TWO_BINARY, {}, 0.095, 5e-4),
        (krippendorff_alpha, TWO_NOMINAL, {}, 0.692, 5e-4),
        (krippendorff_alpha, FOUR_OBSERVERS, {"level": "ordinal"}, 0.815, 5e-4),
        (krippendorff_alpha, FOUR_OBSERVERS, {"level": "interval"}, 0.849, 5e-4),
        # Gwet (2014), Handbook of Inter-Rater Reliability, 4th edition, p. 120, as irrCAC prints it
        (krippendorff_alpha, FOUR_OBSERVERS, {}, 0.74342, 5e-6),
        (gwet_ac, FOUR_OBSERVERS, {}, 0.77544, 5e-6),
        (cohen_kappa, ABSTRACTORS, {}, 0.7964094, 5e-8),
        (gwet_ac, ABSTRACTORS, {}, 0.8493305, 5e-8),
        (krippendorff_alpha, ABSTRACTORS, {}, 0.7972585, 5e-8),
        (gwet_ac, PSYCHIATRISTS, {}, 0.4448007, 5e-8),
        (krippendorff_alpha, PSYCHIATRISTS, {}, 0.4204384, 5e-8),
        (icc, SHROUT_FLEISS, {"kind": "A,1"}, 0.29, 5e-3),
        (icc, SHROUT_FLEISS, {"kind": "C,1"}, 0.71, 5e-3),
        (icc, SHROUT_FLEISS, {"kind": "A,k"}, 0.62, 5e-3),
        (icc, SHROUT_FLEISS, {"kind": "C,k"}, 0.91, 5e-3),
    ],
)
def test_printed_examples_are_met(coefficient, sheet, options, printed, off):
    """Krippendorff's alphas of his own examples, Gwet's, Shrout and Fleiss's."""
    found = coefficient(scores(sheet), **options, **ALONE)
    assert found.value == pytest.approx(printed, abs=off)


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


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("kind", ["A,1", "C,1", "A,k", "C,k"])
def test_icc_is_pingouins(rng, kind):
    table = scores(rng.integers(1, 6, (12, 3)) + rng.integers(0, 3, (12, 1)))
    reference = pingouin.intraclass_corr(
        table, targets="reply_id", raters="rater", ratings="score"
    ).set_index("Type")["ICC"]
    assert icc(table, kind=kind, **ALONE).value == pytest.approx(reference[f"ICC({kind})"])


@pytest.mark.mirror
def test_kappas_of_experts_match_the_published_table(mirror):
    """62 of 63 follow with the whole scale; in the other nobody gave a 4, and it follows when 4 is
    no category."""
    from heart_utils.sources.load import load_scores

    ratings = load_scores("empathic_comm")
    published = pd.read_csv(mirror / "empathic_comm_judges" / "table_kappa.csv")
    odd, n_experts = [], 0
    for dimension, printed, pair in zip(
        published["Dimension"],
        published.iloc[:, 3],
        published["Annotator Pair"].map(ast.literal_eval),
        strict=True,
    ):
        if all(name[:-1] == "expert" for name in pair):
            table = ratings[(ratings["dimension"] == dimension) & ratings["rater"].isin(pair)]
            n_experts += 1
            ours = cohen_kappa(table, weights="quadratic", n_resamples=0).value
            if abs(ours - printed) > 0.005 + 1e-9:
                odd.append((dimension, *pair))
                table = table.assign(score=table["score"].rank(method="dense"))
                ours = cohen_kappa(table, weights="quadratic", n_resamples=0).value
                assert ours == pytest.approx(printed, abs=0.005)
    assert (n_experts, odd) == (63, [("self_oriented", "expert1", "expert2")])


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


def test_resamples_with_one_category_are_left_out_and_counted():
    sheet = [(1, 1)] * 59 + [(1, 2)]
    found = krippendorff_alpha(scores(sheet), cluster="reply_id", n_resamples=300)
    assert 80 < found.n_undefined < 140  # (59/60)^60 = .365 of 300 lack the one unit that differs
    assert found.ci_low <= found.value <= found.ci_high


def test_coefficients_never_exceed_one_nor_do_their_intervals(rng):
    sheet = np.repeat(rng.integers(1, 4, (9, 1)), 2, axis=1)
    sheet[0, 1] = 4
    assert krippendorff_alpha(scores(sheet), cluster="reply_id").ci_high <= 1.0


@pytest.mark.parametrize("coefficient", [icc, cohen_kappa, krippendorff_alpha])
def test_a_dialogue_without_a_shared_reply_is_no_cluster_and_moves_no_interval(rng, coefficient):
    """One rater alone scored two of ten dialogues: eight can be drawn, with them in the table or
    not."""
    table = scores(rng.integers(1, 4, (40, 2)))
    table["dialogue_id"] = table["reply_id"].map({f"reply_{k}": f"d{k // 4}" for k in range(40)})
    lonely = table["dialogue_id"].isin(["d0", "d9"]) & (table["rater"] == "1")
    with_them, without = table[~lonely], table[~table["dialogue_id"].isin(["d0", "d9"])]
    found, expected = (
        coefficient(rows, n_resamples=50, rng=np.random.default_rng(5))
        for rows in (with_them, without)
    )
    assert (found.n_clusters, expected.n_clusters) == (8, 8)
    assert (found.ci_low, found.ci_high) == pytest.approx((expected.ci_low, expected.ci_high))


def test_intervals_are_those_of_resampled_tables(rng):
    sheet = pd.DataFrame(rng.normal(size=(120, 2)) + rng.normal(size=(120, 1)))
    about = pd.DataFrame(
        {
            "reply_id": [f"reply_{k}" for k in range(120)],
            "dialogue_id": np.repeat(np.arange(60), 2),
            "responder": list("xy") * 60,
        }
    )
    table = scores(sheet).merge(about)
    found = icc(table, n_resamples=4, rng=np.random.default_rng(3))
    values = []
    for weights in draw_weights(60, 4, np.random.default_rng(3)):
        drawn = [
            table[table["dialogue_id"] == d].assign(copy=c)
            for d, n in enumerate(weights)
            for c in range(int(n))
        ]
        copied = pd.concat(drawn).assign(
            reply_id=lambda rows: rows["reply_id"] + "/" + rows["copy"].astype(str)
        )
        values.append(icc(copied, **ALONE).value)
    assert (found.ci_low, found.ci_high) == pytest.approx(expanded_percentiles(values, 60))


def test_only_replies_that_all_raters_scored_enter():
    found = icc(scores([[1, 2], [3, 4], [5, None], [2, 2]]), **ALONE)
    assert found.n_units == 3


SEVERAL = pd.concat([scores([[1, 2], [2, 2]]).assign(dimension=name) for name in ("care", "tact")])
TWICE = pd.concat([scores([[1, 2]])] * 2, ignore_index=True)
ONE_SHARED = scores([[1, 1], [2, N], [N, 3]])  # nltk and fast-krippendorff give a bare nan
BAD = [
    (gwet_ac, scores([[1], [2]]), {}, "needs two raters or more"),
    (gwet_ac, scores([[1, N], [N, 2]]), {}, "share no unit"),
    (gwet_ac, SEVERAL, {}, "several dimensions .care, tact."),
    (gwet_ac, TWICE, {}, "more than once"),
    (krippendorff_alpha, scores([[2, 2], [2, 2]]), {}, "All answers are 2: agreement is 1"),
    (krippendorff_alpha, ONE_SHARED, {}, "All answers are 1: .*one category only"),
    (
        krippendorff_alpha,
        scores([[1, 2], [2, 1]]),
        {"level": "cardinal"},
        "level must be one of nom",
    ),
    (cohen_kappa, ONE_SHARED, {}, "All answers are 1: .*one category only"),
    (cohen_kappa, scores([[1, 2, 1], [2, 2, 1]]), {}, "is of two raters; the table holds 3"),
    (
        cohen_kappa,
        scores([[1, 2], [2, 1]]),
        {"weights": "cubic"},
        "must be 'linear' or 'quadratic'",
    ),
    (icc, scores([[1, 2], [2, 3]]), {"kind": "1,1"}, "kind must be one of"),
    (icc, scores([[1, N], [N, 3]]), {}, "0 and 1 share 0 replies"),
    (icc, scores([[1], [2]]), {}, "Name two raters or more"),
    (icc, scores([[1, 2]]), {}, "0 and 1 share 1 replies"),
    (icc, scores([[2, 2], [2, 2]]), {}, "without variance"),
]


@pytest.mark.parametrize(("coefficient", "table", "options", "message"), BAD)
def test_what_has_no_coefficient_is_refused_with_a_reason(coefficient, table, options, message):
    with pytest.raises(AgreementError, match=message):
        coefficient(table, **options, **ALONE)


# Reliabilities of many judges


@pytest.mark.parametrize("of", ["responder", None])
def test_each_reliability_is_that_of_a_call_of_its_own(of):
    panels = [Panel(kind, 1, 1, scores=True) for kind in ("human", "model", "model")]
    rng, dimensions = np.random.default_rng(5), ("warmth", "advice")
    study = simulate_study(
        rng=rng, strengths=5, n_dialogues=30, pairs=1, panels=panels, dimensions=dimensions
    )
    scores = study.scores
    person, *judges = (
        scores["rater"].drop_duplicates().sort_values(key=lambda names: names.str[0] == "j")
    )
    own = (scores["rater"] == judges[0]) & (scores["responder"] == scores["responder"].min())
    scores = scores[~own]  # a judge does not score itself
    scores.loc[scores.index[::17], "state"] = "error"  # what failed enters neither way
    found = judge_reliability(scores, person=person, of=of, kinds=("C,1", "A,1"))
    assert len(found) == 2 * 2 * 2
    for row in found.itertuples():
        rows = scores.query("rater in [@person, @row.judge] and dimension == @row.dimension")
        if of:  # the means of the replies that both scored
            rows = rows[rows["state"] == "valid"]
            both = rows[rows["reply_id"].duplicated(keep=False)]
            means = both.groupby(["responder", "rater"], as_index=False)["score"].mean()
            rows = means.rename(columns={of: "reply_id"})
        alone = icc(rows, kind=row.kind, cluster=None, n_resamples=0)
        assert (row.value, row.n_rows) == (pytest.approx(alone.value, abs=1e-12), alone.n_units)
    with pytest.raises(AgreementError, match="nobody has no score that counts"):
        judge_reliability(scores, person="nobody")


# Judge -> its name in the release's file, and the responder that is the judge itself, which the
# published reliabilities leave out.
JUDGES = {
    "claude-3.7-sonnet": ("Claude-3.7-Sonnet", "claude-3.5-haiku"),
    "gpt-4o": ("GPT-4o", "gpt-4o"),
    "gemini-2.5-flash": ("Gemini-2.5-Flash", "gemini-2.0-flash"),
    "o4-mini": ("o4-mini", "gpt-4o-mini"),
}


@pytest.mark.mirror
@pytest.mark.slow
def test_reliabilities_of_judges_match_the_published_table(mirror):
    """Between the means of ten responders, `original` among them, without the judge's own; zeros
    and sixes count."""
    from heart_utils.sources.load import load_scores

    mentalalign = load_scores("mentalalign", as_published=True)
    published = pd.read_csv(mirror / "mentalalign70k" / "published_icc.csv")
    assert len(published) == 28
    for judge, (name, own) in JUDGES.items():
        rows = mentalalign[mentalalign["rater"].isin(["clinicians", judge])]
        rows = rows[rows["responder"] != own]
        ours = judge_reliability(rows, person="clinicians", kinds=("C,1", "A,1"))
        ours = ours.pivot_table(index="dimension", columns="kind", values="value")
        theirs = published[published["judge"] == name].set_index("attribute").loc[ours.index]
        assert ours["C,1"].tolist() == pytest.approx(theirs["icc_c1"].tolist(), abs=0.005), name
        assert ours["A,1"].tolist() == pytest.approx(theirs["icc_a1"].tolist(), abs=0.005), name


@pytest.mark.mirror
def test_published_figures_are_those_of_their_releases(mirror):
    ours = pd.read_csv(find_root() / "data" / "published" / "agreement.csv")
    assert ours["source"].str.len().min() > 20
    assert not ours.duplicated(["data_set", "part", "one", "other", "measure"]).any()
    ours = ours.set_index(["data_set", "part", "one", "other", "measure"])["value"]
    release = pd.read_csv(mirror / "empathic_comm_judges" / "table_kappa.csv")
    pairs = release["Annotator Pair"].map(ast.literal_eval)
    kappas = {
        (part, *pair): kappa
        for part, pair, kappa in zip(release["Dimension"], pairs, release.iloc[:, 3], strict=True)
    }
    assert len(ours["empathic_comm"]) == 63
    assert all(kappas[key[:3]] == value for key, value in ours["empathic_comm"].items())
    release = pd.read_csv(mirror / "mentalalign70k" / "published_icc.csv")
    release = release.set_index(["judge", "attribute"])[["icc_c1", "icc_a1"]]
    release.columns = ["ICC(C,1)", "ICC(A,1)"]
    assert len(ours["mentalalign"]) == 56
    for (part, _, judge, measure), value in ours["mentalalign"].items():
        assert value == release.loc[(JUDGES[judge][0], part), measure]
