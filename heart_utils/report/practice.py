"""Practice for raters, offline: read, choose between two blinded replies, then see who wrote them and what raters said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

import numpy as np
import pandas as pd

from heart_utils.ratings.verdicts import combine_orders
from heart_utils.report.conversation import Reading, read_conversation
from heart_utils.runs import may_publish, strictest_licence, visible_text

__all__ = ["WRITTEN_BY", "practise_comparisons"]

WRITTEN_BY = {
    "human": "a person",
    "model": "a language model",
    "reference": "this project, drafted with a language model's help: not a person's own reply",
    "source": "somebody unknown: it came with the data set",
    "probe": "a rule, as a probe: what is wrong with it is known",
}
"""What a reader is told about a reply, by its ``responder_kind``."""

SCRIPT = """
for (const box of document.querySelectorAll(".heart-practice")) {
  const pages = [...box.querySelectorAll("article")], said = box.querySelector(".said"), end = box.querySelector(".end");
  let votes = [];
  const show = (part) => {
    for (const other of [box.querySelector(".begin"), ...pages, end]) other.hidden = other !== part;
    part.querySelector("h3").focus();
  };
  const begin = () => {
    votes = [];
    for (const page of pages) {
      page.querySelector("form").reset();
      page.querySelector("fieldset").disabled = false;
      page.querySelector("details").hidden = page.querySelector(".next").hidden = true;
      page.querySelector(".skip").hidden = false;
    }
    show(pages[0]);
  };
  const row = (cells, kind) => {
    const line = document.createElement("tr");
    cells.forEach((text, place) => {
      const cell = document.createElement(kind ?? (place ? "td" : "th"));
      if (cell.tagName === "TH") cell.scope = kind ? "col" : "row";
      cell.textContent = text;
      line.append(cell);
    });
    return line;
  };
  const count = () => {
    const writers = new Map();
    for (const { page, vote } of votes) for (const side of ["a", "b"]) {
      const name = page.dataset[side], seen = writers.get(name) ?? [0, 0, 0];
      writers.set(name, [seen[0] + 1, seen[1] + (vote === side), seen[2] + (vote === "tie")]);
    }
    const lines = [...writers].sort((one, other) => other[1][1] / other[1][0] - one[1][1] / one[1][0]);
    const table = end.querySelector("table");
    table.tHead.replaceChildren(row(["Written by", "Shown", "Chosen", "Tied"], "th"));
    table.tBodies[0].replaceChildren(...lines.map(([name, seen]) => row([name, ...seen])));
    const of = (side) => votes.filter(({ vote }) => vote === side).length;
    end.querySelector(".sides").textContent = "Your choices: Reply A " + of("a") + ", Reply B " + of("b") + ", neither "
      + of("tie") + "; skipped " + (pages.length - votes.length) + " of " + pages.length + ".";
  };
  pages.forEach((page, number) => {
    const onward = () => {
      said.textContent = "";
      if (pages[number + 1]) return show(pages[number + 1]);
      count();
      show(end);
    };
    page.querySelector("form").addEventListener("submit", (event) => {
      event.preventDefault();
      const vote = new FormData(event.target).get("vote"), details = page.querySelector("details");
      votes.push({ page, vote });
      page.querySelector("fieldset").disabled = page.querySelector(".skip").hidden = true;
      details.hidden = page.querySelector(".next").hidden = false;
      details.open = true;
      details.querySelector("summary").focus();
      said.textContent = "Reply A was written by " + page.dataset.a + ", Reply B by " + page.dataset.b + ".";
    });
    page.querySelector(".next").addEventListener("click", onward);
    page.querySelector(".skip").addEventListener("click", onward);
  });
  for (const button of box.querySelectorAll(".begin button, .end button")) button.addEventListener("click", begin);
  box.classList.add("live");
  for (const part of [...pages, end]) part.hidden = true;
}
"""

STYLE = """
.heart-practice { max-width: 60rem; margin: 1rem 0; padding: .8rem 1rem; border: 1px solid var(--pst-color-border, #767676); }
.heart-practice:not(.live) .only-live { display: none; }
.heart-practice h3 { margin-top: .2rem; font-size: 1.15rem; }
.heart-practice .two { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(16rem, 100%), 1fr)); gap: .8rem; }
.heart-practice .two > div { padding: .5rem .8rem; border: 1px dashed var(--pst-color-border, #767676); border-radius: .8rem; }
.heart-practice .two p { white-space: pre-wrap; margin: 0; }
.heart-practice fieldset { border: 0; padding: 0; margin: .8rem 0; min-width: 0; }
.heart-practice legend { font-size: 1rem; font-weight: 600; }
.heart-practice label { display: block; padding: .25rem 0; }
.heart-practice textarea { display: block; width: 100%; max-width: 40rem; }
.heart-practice button { padding: .3rem .8rem; margin: .4rem .4rem 0 0; }
.heart-practice .simulated { background: #fff1e0; color: #8a3b00; padding: 0 .3rem; font-weight: 700; }
.heart-practice table { display: block; overflow-x: auto; }
.heart-practice th, .heart-practice td { padding: .2rem .6rem; text-align: left; vertical-align: top; min-width: 4rem; }
.heart-practice th[scope=row] { min-width: 10rem; }
"""


def practise_comparisons(
    histories: pd.DataFrame,
    replies: pd.DataFrame,
    comparisons: pd.DataFrame,
    verdicts: pd.DataFrame,
    responders: pd.DataFrame,
    *,
    licences: Iterable[str],
    who_wrote: str,
    n: int = 12,
    cautions: Mapping[str, str] | None = None,
    rng: np.random.Generator,
) -> Reading:
    """Make a set of comparisons to practise on, one conversation at a time, with nothing stored and nothing sent.

    Parameters
    ----------
    histories, replies, comparisons, verdicts, responders : pandas.DataFrame
        The tables of a run. Only valid replies with words take part; verdicts may be none.
    licences : iterable of str
        What the run's manifest records for histories and replies. If one of them, or that of a history, does not let
        words be published, they are not shown.
    who_wrote : str
        Who wrote the conversations, as the reader must know it.
    n : int
        Comparisons, at most one a dialogue. Pairs of responders take turns.
    cautions : mapping of str to str, optional
        Rater -> what must stand beside its verdicts.
    rng : numpy.random.Generator
        Draws conversations, pairs and sides.

    Returns
    -------
    Reading
        HTML with its own script. Without scripts the comparisons stand under each other, and each opens by itself.
        Where no words may be shown, or there are none, a sentence says so.

    Examples
    --------
    >>> history = {"history_id": "h", "dialogue_id": "d", "problem": "moving", "licence": "CC-BY-NC-4.0", "turns": []}
    >>> none = pd.DataFrame()
    >>> practise_comparisons(pd.DataFrame([history]), none, none, none, none, licences=["CC-BY-NC-4.0"],
    ...     who_wrote="crowd workers", rng=np.random.default_rng(1))._repr_html_()[:62]
    '<p>There is no practice here: words under CC-BY-NC-4.0 may not'
    """
    stated = [*licences, *histories["licence"].unique()]
    open_ones = histories[histories["licence"].map(may_publish)]
    if open_ones.empty or not all(may_publish(licence) for licence in licences):
        words = f"words under {strictest_licence(stated)} may not be shown in a page. They stand in your own copy of the data."
        return Reading(f"<p>There is no practice here: {escape(words)}</p>")
    chosen = _choose(open_ones, replies, comparisons, n, rng)
    if chosen.empty:
        return Reading("<p>There is no practice here: no conversation of this run has two valid replies with words.</p>")
    flips = rng.permutation(np.arange(len(chosen)) % 2 == 1)
    kinds = {row["responder"]: _written_by(row) for row in responders.to_dict("records")}
    texts = replies.set_index("reply_id")["text"]
    told = open_ones.set_index("history_id", drop=False)
    articles = [
        _article(
            f"Comparison {number} of {len(chosen)}",
            told.loc[pair["history_id"]],
            _sides(pair, flip, texts, kinds),
            _what_was_said(verdicts[verdicts["pair_id"] == pair["pair_id"]], flip, cautions or {}),
            who_wrote,
        )
        for number, (pair, flip) in enumerate(zip(chosen.to_dict("records"), flips, strict=True), start=1)
    ]
    about = ", ".join(dict.fromkeys(_problem(told.loc[history]) for history in chosen["history_id"]))
    begin = (
        '<div class="begin"><h3 tabindex="-1">Content note</h3>'
        f"<p>The {len(chosen)} conversations are about: {escape(about)}. Each says first what it is about, and can be skipped. "
        "Stop whenever you like.</p><p>Your answers stay in this page: nothing is stored, nothing is sent, and a reload "
        'forgets them.</p><button type="button" class="only-live">Show the first comparison</button></div>'
    )
    end = (
        '<div class="end only-live"><h3 tabindex="-1">Your tally</h3><p class="sides"></p>'
        "<table><caption>Whose replies you chose</caption><thead></thead><tbody></tbody></table><p>A handful of "
        "choices says something about how choosing feels, and nothing about who writes better. If one side won much more often "
        'than the other, remember that sides were drawn by lot.</p><button type="button">Start again</button></div>'
    )
    return Reading(
        f'<section class="heart-practice mathjax_ignore" aria-label="Practice for raters"><style>{STYLE}</style>{begin}'
        f'{"".join(articles)}{end}<p class="said" aria-live="polite"></p><script>{SCRIPT}</script></section>'
    )


def _choose(
    histories: pd.DataFrame, replies: pd.DataFrame, comparisons: pd.DataFrame, n: int, rng: np.random.Generator
) -> pd.DataFrame:
    """Draw one pair a dialogue, of the two responders who met least so far."""
    shown = set(replies.loc[(replies["state"] == "valid") & replies["text"].fillna("").str.strip().ne(""), "reply_id"])
    pairs = comparisons.drop_duplicates("pair_id")
    pairs = pairs[pairs["reply_a"].isin(shown) & pairs["reply_b"].isin(shown)]
    told = histories[histories["history_id"].isin(pairs["history_id"])]
    drawn = told.iloc[rng.permutation(len(told))].drop_duplicates("dialogue_id")["history_id"].head(n)
    met: Counter[tuple[str, str]] = Counter()
    rows = []
    for history in drawn:
        those = pairs[pairs["history_id"] == history]
        who = list(zip(those["responder_a"], those["responder_b"], strict=True))
        place = min(rng.permutation(len(those)), key=lambda row: met[who[row]])
        met[who[place]] += 1
        rows.append(those.iloc[place])
    return pd.DataFrame(rows, columns=pairs.columns)


def _problem(history: pd.Series) -> str:
    return str(history["problem"]) if pd.notna(history["problem"]) else "a trouble that nobody has named"


def _written_by(responder: Mapping[Any, Any]) -> str:
    return f"{responder['responder']} ({WRITTEN_BY[responder['responder_kind']]})"


def _sides(pair: Mapping[Any, Any], flip: bool, texts: pd.Series, kinds: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Give who wrote the reply on each side of the page, and its words."""
    both = [(kinds[pair[f"responder_{one}"]], str(texts[pair[f"reply_{one}"]])) for one in "ab"]
    return dict(zip("AB", both[::-1] if flip else both, strict=True))


def _article(title: str, history: pd.Series, sides: Mapping[str, tuple[str, str]], said: Iterable[str], who_wrote: str) -> str:
    conversation = read_conversation(history, who_wrote=who_wrote)._repr_html_()
    replies = "".join(
        f'<div><strong>Reply {side}</strong><p dir="auto">{escape(visible_text(text))}</p></div>'
        for side, (_, text) in sides.items()
    )
    votes = {"a": "Reply A", "tie": "Neither more than the other", "b": "Reply B"}
    choices = "".join(
        f'<label><input type="radio" name="vote" value="{vote}" required> {name}</label>' for vote, name in votes.items()
    )
    writers = "".join(f"<li><strong>Reply {side}</strong>: {escape(writer)}</li>" for side, (writer, _) in sides.items())
    names = " ".join(f'data-{side.lower()}="{escape(writer)}"' for side, (writer, _) in sides.items())
    return (
        f'<article {names}><h3 tabindex="-1">{title}: {escape(_problem(history))}</h3>{conversation}'
        f'<div class="two">{replies}</div><form class="only-live" autocomplete="off"><fieldset>'
        f"<legend>Which reply feels more supportive?</legend>{choices}"
        '<label>Why? (for yourself) <textarea rows="2"></textarea></label><button>Choose, and see who wrote them</button>'
        "</fieldset></form><details><summary>Who wrote them, and what raters said</summary>"
        f"<ul>{writers}{''.join(said)}</ul></details>"
        '<button type="button" class="only-live skip">Skip this one</button>'
        '<button type="button" class="only-live next">Go on</button></article>'
    )


def _what_was_said(verdicts: pd.DataFrame, flip: bool, cautions: Mapping[str, str]) -> list[str]:
    """Put the verdicts on one pair in terms of the sides of this page: judges one by one, people counted."""
    if verdicts.empty:
        return ["<li>Nobody has rated this pair.</li>"]
    side = {"a": "Reply B", "b": "Reply A", "tie": "neither"} if flip else {"a": "Reply A", "b": "Reply B", "tie": "neither"}
    lines = []
    people = verdicts[verdicts["rater_kind"] == "human"]
    for line, rows in people.groupby("dimension", sort=False):
        found = Counter(side[row["verdict"]] if row["state"] == "valid" else row["state"] for row in rows.to_dict("records"))
        counts = ", ".join(f"{count} {answer}" for answer, count in found.most_common())
        lines.append(_line(f"People ({rows['rater'].nunique()}), {line}", counts, bool(rows["simulated"].any())))
    models = verdicts[verdicts["rater_kind"] == "model"]
    for (rater, asked, protocol), rows in models.groupby(["rater", "dimension", "protocol"], sort=False):
        each = [_answer(row, side) for row in rows.to_dict("records")]
        joined = combine_orders(rows)
        if len(joined) < len(rows):
            each += [f"both orders joined: {_answer(row | {'order': None}, side)}" for row in joined.to_dict("records")]
        lines.append(_line(f"{rater} (a model), {asked}, protocol {protocol}", "; ".join(each), bool(rows["simulated"].any())))
    lines += [f"<li><em>{escape(cautions[rater])}</em></li>" for rater in verdicts["rater"].unique() if rater in cautions]
    return lines


def _answer(row: Mapping[Any, Any], side: Mapping[str, str]) -> str:
    """Say one answer: what was chosen, in which order, and the probability that the chosen one got."""
    first = {"ab": "a", "ba": "b"}.get(str(row["order"]))
    when = (f" with {side[first]} shown first" if first else "") + (", asked again" if row["repeat"] else "")
    if row["state"] != "valid":
        return f"{row['state']}{when}"
    share = row.get("p_a")
    p = (
        ""
        if pd.isna(share) or row["verdict"] == "tie"
        else f" (probability {share if row['verdict'] == 'a' else 1 - share:.2f})"
    )
    return f"{side[row['verdict']]}{p}{when}"


def _line(who: str, what: str, simulated: bool) -> str:
    mark = '<span class="simulated">SIMULATED</span> ' if simulated else ""
    return f"<li>{mark}<strong>{escape(who)}</strong>: {escape(what)}</li>"
