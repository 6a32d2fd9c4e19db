"""The four open studies in ``data/public`` as rows of the table ``effects``."""

from __future__ import annotations

import pandas as pd

from heart_utils.evidence.effects import effect_row, share_between, share_clustered

__all__ = ["BOTS", "count_wins", "measured_effects", "therapist_wins"]

BOTS = ("pi", "serena", "noni", "character-ai-therapist", "gpt-therapist")
"""Therapy products, which people used by hand and people classed; the other models' replies were classed by GPT-4o."""

YIN = "https://doi.org/10.1073/pnas.2319112121"
WELIVITA = "https://arxiv.org/abs/2403.05572"
ZHAN = "https://arxiv.org/abs/2404.01288"
MOORE = "https://arxiv.org/abs/2504.18412"


def measured_effects(
    recipients: pd.DataFrame, welivita: pd.DataFrame, resort: pd.DataFrame, therapists: pd.DataFrame, *, ci_level: float = 0.95
) -> pd.DataFrame:
    """Compute the win share of models against each kind of people, in each study.

    Parameters
    ----------
    recipients, therapists : pandas.DataFrame
        Tables of scores, as :func:`heart_utils.load_scores` gives them.
    welivita, resort : pandas.DataFrame
        Tables of tallies, in which a is a person and b a model.
    ci_level : float
        Of the intervals.

    Returns
    -------
    pandas.DataFrame
        A table of effects: recipients by label (three rows), strangers (two), psychologists (two), hard moments (two).
        Intervals cover recipients like these; batches with their raters; posts and psychologists; moments and therapists.

    Raises
    ------
    heart_utils.evidence.effects.EffectError
        If a study has one cluster.

    Examples
    --------
    >>> from heart_utils import load_scores, load_tallies
    >>> recipients, therapists = load_scores("recipients"), load_scores("therapists")
    >>> found = measured_effects(recipients, load_tallies("welivita"), load_tallies("resort"), therapists)
    >>> found.loc[found["label"] == "true", ["win_share", "ci_low", "ci_high"]].round(2).values.tolist()
    [[0.44, 0.37, 0.52]]
    """
    yin = {"study": "Yin et al. 2024", "people": "another participant", "models": "Bing Chat, 2023", "raters": "recipient"}
    heard = recipients[recipients["dimension"] == "felt_heard"]
    scores = {group: part["score"].to_numpy() for group, part in heard.groupby(["responder", "label"])}
    rows = []
    for label, told_model, told_person in [("person", "person", "person"), ("ai", "ai", "ai"), ("true", "ai", "person")]:
        found = share_between(scores["bing-chat", told_model], scores["person", told_person], ci_level=ci_level)
        told = {"label": label, "outcome": "felt heard", "n_raters": found["n_clusters"], "cluster": "recipient", "source": YIN}
        rows.append(effect_row(found, **yin, **told))
    strangers = {"study": "Welivita and Pu 2024", "people": "crowd workers", "raters": "stranger", "label": "hidden"}
    for responder, model in {"gpt-4": "GPT-4", "gpt-4-empathy": "GPT-4 told what empathy is"}.items():
        wins = count_wins(welivita, by="batch", responder_a="person", responder_b=responder)
        found = share_clustered(wins, clusters=["cluster"], weight="n", ci_level=ci_level)
        counts = {"n_people_replies": wins["n"].sum(), "n_model_replies": wins["n"].sum(), "n_raters": 2 * found["n_clusters"]}
        words = {"models": model, "outcome": "rated good", "cluster": "batch of ten with its raters", "source": WELIVITA}
        rows.append(effect_row(found, **strangers, **counts, **words))
    experts = {"study": "Zhan et al. 2024", "models": "GPT-4 Turbo, Llama 2, Mistral", "raters": "expert", "label": "hidden"}
    for responder, people in {"trained": "people trained for the task", "commenter": "Reddit commenters"}.items():
        wins = count_wins(resort, by="post", dimension="empathy", responder_a=responder)
        found = share_clustered(wins, clusters=["cluster", "rater"], weight="n", ci_level=ci_level)
        words = {"people": people, "outcome": "empathy", "cluster": "post and psychologist", "source": ZHAN}
        rows.append(effect_row(found, **experts, n_raters=wins["rater"].nunique(), **words))
    hard = {"study": "Moore et al. 2025", "people": "therapists", "raters": "expert", "label": "hidden"}
    for model, chosen in {"five models": False, "five therapy bots": True}.items():
        valid = therapists[therapists["state"] == "valid"]
        writers = valid[(valid["responder"] != "therapist") & (valid["responder"].isin(BOTS) == chosen)]
        wins = therapist_wins(valid, sorted(writers["responder"].unique()))
        found = share_clustered(wins, clusters=["dialogue_id", "author_id"], ci_level=ci_level)
        counts = {"n_people_replies": len(wins), "n_model_replies": len(writers)}
        rows.append(
            effect_row(
                found, models=model, outcome="appropriate", **hard, **counts, cluster="moment and therapist", source=MOORE
            )
        )
    return pd.concat(rows, ignore_index=True)


def count_wins(tallies: pd.DataFrame, *, by: str, **chosen: str) -> pd.DataFrame:
    """Turn tallies into wins of b, the model.

    Parameters
    ----------
    tallies : pandas.DataFrame
        A table of tallies.
    by : str
        The cut, such as ``"batch"``.
    **chosen
        Column -> the one word to keep.

    Returns
    -------
    pandas.DataFrame
        The rows kept, with ``n`` comparisons and ``won``, the share that b won, a tie half.

    Raises
    ------
    ValueError
        If no row is left.

    Examples
    --------
    >>> tallies = pd.DataFrame({"by": ["batch"], "responder_b": ["gpt-4"], "n_a": [1], "n_tie": [2], "n_b": [2]})
    >>> count_wins(tallies, by="batch", responder_b="gpt-4")[["n", "won"]].values.tolist()
    [[5.0, 0.6]]
    """
    kept = tallies[(tallies[["by", *chosen]] == pd.Series({"by": by, **chosen})).all(axis=1)]
    if kept.empty:
        raise ValueError(f"No row of the tallies has by={by!r} and {chosen}.")
    n = kept[["n_a", "n_tie", "n_b"]].sum(axis=1)
    return kept.assign(n=n, won=(kept["n_b"] + kept["n_tie"] / 2) / n)


def therapist_wins(scores: pd.DataFrame, responders: list[str]) -> pd.DataFrame:
    """Compare each therapist's reply with models' replies to the same moment.

    Parameters
    ----------
    scores : pandas.DataFrame
        Valid rows of the set ``therapists``.
    responders : list of str
        Models, each of which counts the same in each moment.

    Returns
    -------
    pandas.DataFrame
        One row a reply of a therapist: ``dialogue_id`` (the moment), ``author_id``, and ``won``, how often a model's reply
        was appropriate where this one was not, a tie half.

    Examples
    --------
    >>> scores = pd.DataFrame({"dialogue_id": "bridge", "responder": ["therapist", "gpt", "gpt"], "score": [1.0, 1.0, 0.0]})
    >>> scores["author_id"] = ["t1", None, None]
    >>> therapist_wins(scores, ["gpt"])["won"].tolist()  # a tie and a loss
    [0.25]
    """
    models = scores[scores["responder"].isin(responders)].groupby(["dialogue_id", "responder"])["score"].mean()
    people = scores[scores["responder"] == "therapist"]
    right = people["dialogue_id"].map(models.groupby("dialogue_id").mean())
    # With scores of 0 and 1, a win less a loss is a difference of scores.
    return people[["dialogue_id", "author_id"]].assign(won=0.5 + (right - people["score"]) / 2)
