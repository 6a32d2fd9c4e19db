import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import kendalltau
from statsmodels.stats.multitest import multipletests

from heart_utils.agreement.panel import rank_agreement
from heart_utils.agreement.ranks import order_changes
from heart_utils.ratings.verdicts import AgreementError


def conversations(sheets):
    """Make scores from {history: {rater: scores of its replies}}."""
    rows = [
        (f"{history}--{k}", history, history, f"r{k}", rater, score)
        for history, said in sheets.items()
        for rater, values in said.items()
        for k, score in enumerate(values)
        if score is not None
    ]
    table = pd.DataFrame(
        rows, columns=["reply_id", "history_id", "dialogue_id", "responder", "rater", "score"]
    )
    return table.assign(
        dimension="empathy",
        rater_kind=np.where(table["rater"].str.startswith("m"), "model", "human"),
    )


@settings(max_examples=12)
@given(
    st.lists(
        st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=2, max_size=6),
        min_size=1,
        max_size=4,
    )
)
def test_tau_is_the_mean_of_scipys_over_conversations(sheets):
    table = conversations(
        {
            f"h{k}": dict(zip("pm", zip(*sheet, strict=True), strict=True))
            for k, sheet in enumerate(sheets)
        }
    )
    found = rank_agreement(table, n_resamples=0).iloc[0]
    taus = [
        kendalltau(*zip(*sheet, strict=True)).statistic
        for sheet in sheets
        if all(len(set(side)) > 1 for side in zip(*sheet, strict=True))
    ]
    assert found["n_defined"] == len(taus)
    if taus:
        assert found["tau"] == pytest.approx(np.mean(taus))


def test_replies_that_one_rater_did_not_score_are_not_compared():
    found = rank_agreement(
        conversations({"h": {"p": [1, None, 2], "m": [1, 5, 2]}}), n_resamples=0
    ).iloc[0]
    assert (found["tau"], found["n_defined"]) == (1.0, 1)


def test_full_agreement_leaves_the_doubt_that_ten_dialogues_leave():
    """Wilson's low end of ten of ten is 10 / (10 + t^2), t with nine degrees of freedom; of tau
    twice that less one."""
    table = conversations({f"h{k}": {"p": [1, 2, 3], "m": [2, 4, 5]} for k in range(10)})
    found = rank_agreement(table).iloc[0]
    low = 10 / (10 + 2.262157**2)
    assert found[["tau_low", "tau_high"]].tolist() == pytest.approx([2 * low - 1, 1.0])


def test_each_two_raters_of_one_party_meet_once():
    table = conversations({"h": {"p1": [1, 2], "p2": [1, 2], "p3": [2, 1]}})
    found = rank_agreement(table, between=("human", "human"), n_resamples=0).iloc[0]
    assert (found["n_histories"], found["tau"]) == (3, pytest.approx(-1 / 3))


def test_blocks_may_be_resampled_in_place_of_dialogues(rng):
    sheets = {
        f"h{k:02d}": {"p": rng.integers(1, 6, 5), "m": rng.integers(1, 6, 5)} for k in range(60)
    }
    table = conversations(sheets)
    table["group"] = "block_" + (table["history_id"].str[1:].astype(int) // 12).astype(str)
    by_dialogue, by_block = (
        rank_agreement(table, cluster=name).iloc[0] for name in ("dialogue_id", "group")
    )
    assert (by_dialogue["n_clusters"], by_block["n_clusters"]) == (60, 5)
    assert by_block["provisional"]
    assert by_dialogue["tau_low"] < by_dialogue["tau"] < by_dialogue["tau_high"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table.drop(columns="history_id"), "lack the column history_id"),
        (
            lambda table: table[table["rater_kind"] == "human"],
            "No answer that counts is by 'model'",
        ),
        (lambda table: table.drop(columns="score"), "lack the column score"),
        (
            lambda table: table[(table["rater"] == "p") | table["reply_id"].str.endswith("0")],
            "share no history",
        ),
    ],
)
def test_what_cannot_be_ranked_is_refused_with_a_reason(change, message):
    with pytest.raises(AgreementError, match=message):
        rank_agreement(change(conversations({"h": {"p": [1, 2], "m": [1, 2]}})))


def test_people_agree_with_one_another_where_there_are_two():
    with pytest.raises(AgreementError, match="human and human share no history"):
        rank_agreement(conversations({"h": {"p": [1, 2], "m": [1, 2]}}), between=("human", "human"))


def paired_scores(rng, true, noise, n_starts=40):
    """Scores by start of as many responders as there are true means."""
    table = pd.DataFrame(rng.normal(true, noise, (n_starts, len(true))))
    return (
        table.rename_axis("dialogue_id")
        .melt(ignore_index=False, var_name="responder", value_name="score")
        .reset_index()
    )


def test_two_measures_of_one_truth_change_no_more_than_chance_does():
    rng = np.random.default_rng(1)
    true = np.linspace(0, 1, 10)
    shares = np.mean(
        [
            order_changes(
                paired_scores(rng, true, 1.0),
                paired_scores(rng, true, 1.0),
                n_halves=20,
                n_resamples=0,
            )["share"]
            for _ in range(40)
        ],
        axis=0,
    )
    same, _, _, _, others, _, again, _ = shares
    assert others == pytest.approx(again, abs=0.02)
    assert same < others  # whole studies waver less than halves


def test_a_measure_of_something_else_changes_more_than_chance():
    rng = np.random.default_rng(2)
    true = np.linspace(0, 1, 10)
    table = order_changes(
        paired_scores(rng, true[::-1], 0.5), paired_scores(rng, true, 0.5), n_halves=20
    ).set_index("compared")["share"]
    assert table["other starts"] > 0.7 > table["second again"]


def changes_of(first, second, **options):
    """Shares, and the interval of the excess, by what is compared."""
    return order_changes(first, second, n_halves=20, n_resamples=100, **options).set_index(
        "compared"
    )


def test_near_equal_pairs_change_places_and_none_is_shown_to_be_reversed():
    """Both measures have one truth, in which responders come in equal pairs."""
    rng = np.random.default_rng(4)
    true = np.repeat(np.arange(5.0), 2)
    changed, wrong = 0.0, 0
    for _ in range(40):
        shares = changes_of(paired_scores(rng, true, 1.0), paired_scores(rng, true, 1.0))["share"]
        changed += shares["same starts"] / 40
        wrong += shares["shown reversed"] > 0
        assert shares["shown the same"] > 0.7
    assert changed > 0.03
    assert wrong <= 6  # 5 % of studies at most, give or take


def test_reversals_of_precise_measures_are_shown_and_the_excess_says_so():
    rng = np.random.default_rng(5)
    true = np.linspace(0, 1, 10)
    table = changes_of(paired_scores(rng, true[::-1], 0.3), paired_scores(rng, true, 0.3))
    assert table["share"]["shown reversed"] > 0.7
    assert table["share"]["shown the same"] == 0.0
    assert table["ci_low"]["excess"] > 0.5


def test_a_noisy_second_measure_hides_reversals_and_what_is_not_shown_says_so():
    rng = np.random.default_rng(6)
    true = np.linspace(0, 1, 10)
    other = true[[1, 0, 3, 2, 6, 4, 5, 9, 7, 8]]
    table = changes_of(paired_scores(rng, other, 0.05, 60), paired_scores(rng, true, 2.2, 60))
    assert table["share"]["first again"] < 0.01
    assert table["ci_low"]["excess"] < 0  # though 6 of 45 pairs are truly reversed
    assert table["share"]["not shown"] > 0.9


def test_shown_are_the_pairs_whose_two_t_tests_are_certain_after_holm():
    rng = np.random.default_rng(7)
    first, second = (paired_scores(rng, [0.0, 0.4, 0.6], 1.0) for _ in range(2))
    wide = [rows.pivot_table(index="dialogue_id", columns="responder") for rows in (first, second)]
    p, same = [], []
    for i, j in ((0, 1), (0, 2), (1, 2)):
        t = [stats.ttest_rel(rows.iloc[:, i], rows.iloc[:, j]) for rows in wide]
        p.append(max(one.pvalue for one in t))
        same.append(t[0].statistic * t[1].statistic > 0)
    shown = multipletests(p, method="holm")[0]
    shares = changes_of(first, second)["share"]
    assert shares["shown the same"] == pytest.approx(np.mean(shown & np.array(same)))
    assert shares["not shown"] == pytest.approx(np.mean(~shown))


def test_differences_that_do_not_vary_show_nothing():
    rows = paired_scores(np.random.default_rng(8), [0.0, 1.0], 0.0, 6)
    shares = changes_of(rows, rows)["share"]
    assert shares["not shown"] == 1.0


def test_responders_and_starts_that_one_measure_lacks_are_left_out():
    rng = np.random.default_rng(3)
    first = paired_scores(rng, [0, 1, 2], 0.1)
    second = first[(first["responder"] < 2) & (first["dialogue_id"] < 30)]
    table = order_changes(first, second, n_halves=2)
    assert set(table["n_pairs"]) == {1}
    assert table["n_clusters"].tolist() == [30] * 4 + [15] * 4
    with pytest.raises(AgreementError, match="1 responders in 40"):
        order_changes(first, first[first["responder"] == 1])
