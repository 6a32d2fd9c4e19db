"""Conversations to read, and practice for raters, as pages that work offline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from heart_utils.ratings.verdicts import combine_orders
from heart_utils.report import WORDS, Html, fill_page
from heart_utils.runs import may_publish, strictest_licence, visible_text

__all__ = ["WRITTEN_BY", "practise_comparisons", "read_conversation"]

#: What a reader is told about a reply, by its ``responder_kind``.
WRITTEN_BY: dict[str, str] = WORDS["written_by"]
SEEN_AS = {"a": "Reply A", "b": "Reply B", "tie": "neither"}
TURNED = {"a": "b", "b": "a", "tie": "tie"}


def read_conversation(
    history: Mapping[str, object] | pd.Series,
    replies: Mapping[str, str] | None = None,
    *,
    who_wrote: str,
) -> Html:
    """Show one history as a conversation, with any replies below.

    Parameters
    ----------
    history
        A row of the table ``histories``.
    replies
        What is above each reply -> its text.
    who_wrote
        Who wrote the words, for the reader.

    Returns
    -------
    Html
        Markup inside a text is shown, never run.

    Raises
    ------
    ValueError
        If the history's licence does not let its words be published.

    Examples
    --------
    >>> history = {"history_id": "<b>", "licence": "CC0-1.0", "turns": []}
    >>> "&lt;b&gt;" in read_conversation(history, who_wrote="me")._repr_html_()
    True
    """
    if not may_publish(str(history["licence"])):
        raise ValueError(
            f"The words of {history['history_id']} are under {history['licence']!r} and may not be"
            " shown in a page; show counts, or choose a history under a free licence."
        )
    turns: Sequence[Mapping[str, str]] = history["turns"]  # type: ignore[assignment]
    bubbles = [(turn["speaker"], turn["speaker"], turn["text"]) for turn in turns]
    bubbles += [("supporter heart-reply", label, text) for label, text in (replies or {}).items()]
    shown = [(kind, visible_text(label), visible_text(text)) for kind, label, text in bubbles]
    caption = f"{history['history_id']}: {who_wrote}"
    return Html(fill_page("conversation.html", bubbles=shown, caption=caption))


def practise_comparisons(
    tables: Mapping[str, pd.DataFrame],
    *,
    licences: Iterable[str],
    who_wrote: str,
    cautions: Mapping[str, str] | None = None,
    differs: Mapping[str, str] | None = None,
    rng: np.random.Generator,
) -> Html:
    """Build a page of at most twelve comparisons to practise on, one a dialogue.

    It stores and sends nothing, and compares no two probes. After the choice it shows what judges
    said, and whether most people chose the same.

    Parameters
    ----------
    tables
        A run's ``histories``, ``replies``, ``comparisons``, ``verdicts`` and ``responders``; only
        valid replies are shown.
    licences
        From the manifest.
    who_wrote
        As in :func:`read_conversation`.
    cautions
        Rater -> what must stand beside its verdicts.
    differs
        Responder -> how its reply differs from the other, told after the choice.
    rng
        Draws conversations, pairs and sides.

    Returns
    -------
    Html
        With its own script, or a sentence where no words may be shown or there are none.

    Examples
    --------
    >>> one = pd.DataFrame({"licence": ["CC-BY-NC-4.0"]})
    >>> names = ["histories", "replies", "comparisons", "verdicts", "responders"]
    >>> page = practise_comparisons(
    ...     dict.fromkeys(names, one), licences=[], who_wrote="me", rng=np.random.default_rng(1)
    ... )
    >>> page._repr_html_()[:29]
    '<p>There is no practice here:'
    """
    names = ("histories", "replies", "comparisons", "verdicts", "responders")
    histories, replies, comparisons, verdicts, responders = (tables[name] for name in names)
    stated = [*licences, *histories["licence"].unique()]
    open_ones = histories[histories["licence"].map(may_publish)]
    if open_ones.empty or not all(may_publish(licence) for licence in licences):
        words = (
            f"words under {strictest_licence(stated)} may not be shown in a page. They stand in"
            " your own copy of the data."
        )
        return Html(f"<p>There is no practice here: {escape(words)}</p>")
    probes = set(responders.loc[responders["responder_kind"] == "probe", "responder"])
    both = comparisons["responder_a"].isin(probes) & comparisons["responder_b"].isin(probes)
    chosen = _choose(open_ones, replies, comparisons[~both], rng)
    if chosen.empty:
        return Html(
            "<p>There is no practice here: no conversation of this run has two valid replies with"
            " words.</p>"
        )
    flips = rng.permutation(np.arange(len(chosen)) % 2 == 1)
    writers = {
        who: f"{who} ({WRITTEN_BY[kind]})"
        for who, kind in responders[["responder", "responder_kind"]].to_numpy()
    }
    texts = replies.set_index("reply_id")["text"]
    openings = open_ones.fillna({"problem": "a trouble that nobody has named"}).set_index(
        "history_id", drop=False
    )
    articles = [
        {
            "problem": openings.loc[pair["history_id"], "problem"],
            "conversation": Markup(
                read_conversation(
                    openings.loc[pair["history_id"]], who_wrote=who_wrote
                )._repr_html_()
            ),
            "sides": _sides(pair, flip, texts, writers),
            "said": _what_was_said(rated := verdicts[verdicts["pair_id"] == pair["pair_id"]], flip),
            "people": _peoples_choices(rated, flip),
            "differs": " ".join(
                (differs or {}).get(pair[f"responder_{side}"], "") for side in "ab"
            ).strip(),
            "cautions": [
                cautions[rater]
                for rater in rated["rater"].unique()
                if cautions and rater in cautions
            ],
        }
        for pair, flip in zip(chosen.to_dict("records"), flips, strict=True)
    ]
    about = ", ".join(openings.loc[chosen["history_id"], "problem"].unique())
    return Html(fill_page("practice.html", articles=articles, about=about))


def _choose(
    histories: pd.DataFrame,
    replies: pd.DataFrame,
    comparisons: pd.DataFrame,
    rng: np.random.Generator,
) -> pd.DataFrame:
    written = replies["state"].eq("valid") & replies["text"].fillna("").str.strip().ne("")
    shown = replies.loc[written, "reply_id"]
    pairs = comparisons.drop_duplicates("pair_id")
    pairs = pairs[pairs["reply_a"].isin(shown) & pairs["reply_b"].isin(shown)]
    openings = histories[histories["history_id"].isin(pairs["history_id"])]
    openings = openings.iloc[rng.permutation(len(openings))].drop_duplicates("dialogue_id")
    times_met: Counter[tuple[str, str]] = Counter()
    rows = []
    for history in openings["history_id"].head(12):
        those = pairs[pairs["history_id"] == history]
        who = list(zip(those["responder_a"], those["responder_b"], strict=True))
        least_met = min(rng.permutation(len(those)), key=lambda row: times_met[who[row]])
        times_met[who[least_met]] += 1
        rows.append(those.iloc[least_met])
    return pd.DataFrame(rows, columns=pairs.columns)


def _sides(
    pair: Mapping[Any, Any], flip: bool, texts: pd.Series, writers: Mapping[str, str]
) -> dict[str, tuple[str, str]]:
    both = [
        (writers[pair[f"responder_{side}"]], visible_text(str(texts[pair[f"reply_{side}"]])))
        for side in ("ba" if flip else "ab")
    ]
    return dict(zip("AB", both, strict=True))


def _what_was_said(verdicts: pd.DataFrame, flip: bool) -> list[tuple[str, str, bool]]:
    """List the answers on a pair by this page's sides: judges', and people's counts."""
    side = {choice: SEEN_AS[TURNED[choice] if flip else choice] for choice in SEEN_AS}
    lines = []
    for line, rows in verdicts[verdicts["rater_kind"] == "human"].groupby("dimension", sort=False):
        answers = Counter(
            side[row["verdict"]] if row["state"] == "valid" else row["state"]
            for row in rows.to_dict("records")
        )
        counts = ", ".join(f"{count} {answer}" for answer, count in answers.most_common())
        lines.append(
            (f"People ({rows['rater'].nunique()}), {line}", counts, bool(rows["simulated"].any()))
        )
    models = verdicts[verdicts["rater_kind"] == "model"]
    for (rater, dimension, protocol), rows in models.groupby(
        ["rater", "dimension", "protocol"], sort=False
    ):
        each = [_answer(row, side) for row in rows.to_dict("records")]
        joined = combine_orders(rows)
        if len(joined) < len(rows):
            each += [
                f"both orders joined: {_answer(row | {'order': None}, side)}"
                for row in joined.to_dict("records")
            ]
        lines.append(
            (
                f"{rater} (a model), {dimension}, protocol {protocol}",
                "; ".join(each),
                bool(rows["simulated"].any()),
            )
        )
    return lines


def _peoples_choices(verdicts: pd.DataFrame, flip: bool) -> dict[str, int]:
    """Count people's choices by this page's sides; empty without any."""
    people = verdicts[verdicts["rater_kind"].eq("human") & verdicts["state"].eq("valid")]
    people = people[~people["simulated"].fillna(False).astype(bool)]
    on_overall = people["dimension"].eq("overall")
    people = people[on_overall] if on_overall.any() else people
    choices = people["verdict"].map(TURNED) if flip else people["verdict"]
    return {str(choice): int(n) for choice, n in choices.value_counts().items()}


def _answer(row: Mapping[Any, Any], side: Mapping[str, str]) -> str:
    first = {"ab": "a", "ba": "b"}.get(str(row["order"]))
    when = (f" with {side[first]} shown first" if first else "") + (
        ", asked again" if row["repeat"] else ""
    )
    if row["state"] != "valid":
        return f"{row['state']}{when}"
    share = row.get("p_a")
    if pd.isna(share) or row["verdict"] == "tie":
        return f"{side[row['verdict']]}{when}"
    return (
        f"{side[row['verdict']]} (probability"
        f" {share if row['verdict'] == 'a' else 1 - share:.2f}){when}"
    )
