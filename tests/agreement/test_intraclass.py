import numpy as np
import pandas as pd
import pingouin
import pytest
from agreement_tables import expanded_percentiles, scores

from heart_utils.agreement.kappa import cohen_kappa, icc, judge_reliability, krippendorff_alpha
from heart_utils.ratings.resampling import draw_weights
from heart_utils.ratings.verdicts import AgreementError

ALONE = {"cluster": None, "n_resamples": 0}

# Shrout and Fleiss (1979), https://doi.org/10.1037/0033-2909.86.2.420, table 2: six targets, four
# judges.
SHROUT_FLEISS = [
    [9, 2, 5, 8],
    [6, 1, 3, 2],
    [8, 4, 6, 8],
    [7, 1, 2, 6],
    [10, 5, 6, 9],
    [6, 2, 4, 7],
]

# Judge -> the name of the responder that is the judge itself, which the published reliabilities
# leave out.
JUDGES = {
    "Claude-3.7-Sonnet": ("claude-3.7-sonnet", "claude-3.5-haiku"),
    "GPT-4o": ("gpt-4o", "gpt-4o"),
    "Gemini-2.5-Flash": ("gemini-2.5-flash", "gemini-2.0-flash"),
    "o4-mini": ("o4-mini", "gpt-4o-mini"),
}


@pytest.mark.parametrize(
    ("kind", "printed"), [("A,1", 0.29), ("C,1", 0.71), ("A,k", 0.62), ("C,k", 0.91)]
)
def test_icc_matches_shrout_and_fleiss(kind, printed):
    assert icc(scores(SHROUT_FLEISS), kind=kind, **ALONE).value == pytest.approx(printed, abs=5e-3)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("kind", ["A,1", "C,1", "A,k", "C,k"])
def test_icc_is_pingouins(rng, kind):
    table = scores(rng.integers(1, 6, (12, 3)) + rng.integers(0, 3, (12, 1)))
    reference = pingouin.intraclass_corr(
        table, targets="reply_id", raters="rater", ratings="score"
    ).set_index("Type")["ICC"]
    assert icc(table, kind=kind, **ALONE).value == pytest.approx(reference[f"ICC({kind})"])


def test_only_replies_that_all_raters_scored_enter():
    found = icc(scores([[1, 2], [3, 4], [5, None], [2, 2]]), **ALONE)
    assert found.n_units == 3


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


def test_a_shift_of_one_rater_lowers_agreement_and_not_consistency(rng):
    sheet = np.repeat(rng.normal(size=(30, 1)), 2, axis=1) + [0, 1]
    assert icc(scores(sheet), kind="C,1", **ALONE).value == pytest.approx(1.0)
    assert icc(scores(sheet), kind="A,1", **ALONE).value < 0.8


@pytest.mark.parametrize(
    ("sheet", "settings", "message"),
    [
        ([[1, 2], [2, 3]], {"kind": "1,1"}, "kind must be one of"),
        ([[1, None], [None, 3]], {}, "0 and 1 share 0 replies"),
        ([[1], [2]], {}, "Name two raters or more"),
        ([[1, 2]], {}, "0 and 1 share 1 replies"),
        ([[2, 2], [2, 2]], {}, "without variance"),
    ],
)
def test_what_has_no_icc_is_refused_with_a_reason(sheet, settings, message):
    with pytest.raises(AgreementError, match=message):
        icc(scores(sheet), **settings, **ALONE)


@pytest.fixture(scope="module")
def mentalalign(mirror):
    from heart_utils.sources.load import load_scores

    return load_scores("mentalalign", as_published=True)


@pytest.mark.mirror
@pytest.mark.slow
def test_reliabilities_of_judges_match_the_published_table(mentalalign, mirror):
    """Between the means of ten responders, `original` among them, without the judge's own; zeros
    and sixes count."""
    published = pd.read_csv(mirror / "mentalalign70k" / "published_icc.csv")
    assert len(published) == 28
    for row in published.itertuples():
        judge, own = JUDGES[row.judge]
        chosen = mentalalign["rater"].isin(["clinicians", judge]) & (
            mentalalign["dimension"] == row.attribute
        )
        table = mentalalign[chosen & (mentalalign["responder"] != own)]
        found = judge_reliability(table, person="clinicians", kinds=("C,1", "A,1")).set_index(
            "kind"
        )["value"]
        assert found.tolist() == pytest.approx([row.icc_c1, row.icc_a1], abs=0.005), row


@pytest.mark.mirror
@pytest.mark.slow
def test_one_responder_carries_the_published_reliability(mentalalign):
    """Leaving `original` out moves the published figures by up to .29; leaving out any other moves
    the same one less."""
    table = mentalalign[
        mentalalign["rater"].isin(["clinicians", "gpt-4o"]) & (mentalalign["responder"] != "gpt-4o")
    ]
    found = {
        name: (
            judge_reliability(table[table["responder"] != name], person="clinicians").set_index(
                "dimension"
            )["value"]
        )
        for name in ("", *table["responder"].unique())
    }
    found = pd.DataFrame(found)
    assert found.sub(found[""], axis=0).abs().max().idxmax() == "original"
    reply_by_reply = [
        icc(rows, kind="C,1", n_resamples=0).value for _, rows in table.groupby("dimension")
    ]
    assert max(reply_by_reply) < 0.62


@pytest.mark.mirror
def test_as_many_dialogues_are_drawn_as_people_and_judge_share(mirror):
    """The people's file asks 992 different questions, one of them (a counsellor's words) seen by no
    judge."""
    from heart_utils.sources.load import load_scores

    table = load_scores("mentalalign")
    table = table[table["dimension"] == "empathy"]
    assert table["dialogue_id"].nunique() == 1001
    assert icc(table, raters=["clinicians", "gpt-4o"], n_resamples=0).n_clusters == 991
