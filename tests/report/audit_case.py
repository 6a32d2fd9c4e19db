"""Small files of votes, sound ones and such with one planted fault, for the tests of the audit."""

import numpy as np
import pandas as pd

STRENGTH = {"gpt-4": 0.9, "claude-2": 0.4, "llama-2": -0.3, "helper": -1.0}
JUDGES = ("gpt-5-judge", "mistral-judge")


def sound_votes(rng, n_dialogues=60, n_people=6, sure=2.0):
    """Draw votes by people, three a pair, and by two judges that read, in both orders.

    How well each reply turned out is drawn too, so that people and judges agree beyond the authors.
    `sure` is how clearly a judge decides, in log-odds; of people it is 1.6.
    """
    names = list(STRENGTH)
    rows = []
    for number in range(n_dialogues):
        quality = {name: STRENGTH[name] + rng.normal(0, 1.2) for name in names}
        for i, one in enumerate(names):
            for other in names[i + 1 :]:
                gap = quality[one] - quality[other]
                pair = {"responder_a": one, "responder_b": other, "history_id": f"h{number}"}
                for person in rng.choice(n_people, 3, replace=False):
                    order = rng.choice(["ab", "ba"])
                    asked = {"rater": f"person-{person}", "rater_kind": "human", "order": order}
                    rows.append(pair | asked | {"verdict": answer(rng, 1.6 * gap)})
                for judge in JUDGES:
                    for order in ("ab", "ba"):
                        asked = {"rater": judge, "rater_kind": "model", "order": order}
                        lean = 0.2 if order == "ab" else -0.2
                        rows.append(pair | asked | {"verdict": answer(rng, sure * gap + lean)})
    votes = pd.DataFrame(rows)
    votes["dialogue_id"] = votes["history_id"]
    return votes.assign(dimension="overall", state="valid", repeat=0, simulated=True)


def answer(rng, gap, ties=0.1):
    if rng.random() < ties:
        return "tie"
    return "a" if rng.random() < 1 / (1 + np.exp(-gap)) else "b"


def texts(votes, rng):
    """Draw a reply of some length for each author and history."""
    keys = [
        votes[["history_id", side]].set_axis(["history_id", "responder"], axis=1)
        for side in ("responder_a", "responder_b")
    ]
    replies = pd.concat(keys).drop_duplicates(ignore_index=True)
    return replies.assign(text=["word " * n for n in rng.integers(8, 80, len(replies))])


def never_reads(votes, rng):
    first = votes["order"].map({"ab": "a", "ba": "b"})
    return votes.assign(verdict=first.where(votes["rater"].eq(JUDGES[0]), votes["verdict"]))


def coin(votes, rng):
    by_chance = pd.Series(rng.choice(["a", "b"], len(votes)), votes.index)
    return votes.assign(verdict=by_chance.where(votes["rater"].eq(JUDGES[0]), votes["verdict"]))


def orders_lost(votes, rng):
    one = votes[votes["order"].eq("ab") | votes["rater_kind"].eq("human")]
    return one.assign(order=None)


def one_rater(votes, rng):
    people = votes["rater_kind"].eq("human")
    more = votes[people & (rng.random(len(votes)) < 0.8)].assign(rater="person-0")
    rest = votes.drop(more.index)
    both = pd.concat([more, rest], ignore_index=True)
    return both.drop_duplicates(
        ["history_id", "responder_a", "responder_b", "rater", "order"], ignore_index=True
    )


def one_of_many(votes, rng):
    """Of three people one decides by the name and the others at random."""
    people = votes[votes["rater_kind"].eq("human")].copy()
    people["rater"] = "person-" + pd.Series(np.arange(len(people)) % 3, people.index).astype(str)
    by_chance = pd.Series(rng.choice(["a", "b"], len(people)), people.index)
    steady = people["rater"].eq("person-0")
    return people.assign(verdict=by_chance.mask(steady, "a"))


def names_alone(votes, rng):
    judge = votes["rater_kind"].eq("model")
    return votes.assign(verdict=votes["verdict"].mask(judge, "a"))


def disconnected(votes, rng):
    pairs = votes["responder_a"].eq("gpt-4") & votes["responder_b"].eq("claude-2")
    return votes[pairs | (votes["responder_a"].eq("llama-2"))]


def one_dialogue(votes, rng):
    return votes.assign(dialogue_id="h0")


def mostly_one_dialogue(votes, rng):
    return votes.assign(dialogue_id=votes["dialogue_id"].where(rng.random(len(votes)) < 0.3, "h0"))


def all_ties(votes, rng):
    return votes.assign(verdict=votes["verdict"].mask(rng.random(len(votes)) < 0.7, "tie"))


def family(votes, rng):
    own = votes["rater"].eq(JUDGES[0]) & votes["responder_a"].eq("gpt-4")
    return votes.assign(verdict=votes["verdict"].mask(own & (rng.random(len(votes)) < 0.5), "a"))


def drift(votes, rng):
    votes = by_day(votes)
    late = (
        votes["date"].ge("2026-01-31")
        & votes["rater"].eq(JUDGES[1])
        & votes["responder_b"].eq("helper")
    )
    return votes.assign(verdict=votes["verdict"].mask(late & (rng.random(len(votes)) < 0.7), "b"))


def doubled(votes, rng):
    return pd.concat([votes, votes.sample(40, random_state=1)], ignore_index=True)


def few_dialogues(votes, rng):
    return votes[votes["history_id"].isin([f"h{n}" for n in range(9)])]


def in_safety(spoil):
    """Spoil one dimension of two."""

    def spoil_one(votes, rng):
        return pd.concat([votes, spoil(votes.assign(dimension="safety"), rng)], ignore_index=True)

    spoil_one.__name__ = f"{spoil.__name__}_in_safety"
    return spoil_one


def by_day(votes):
    number = votes["history_id"].str[1:].astype(int)
    return votes.assign(date=pd.Timestamp("2026-01-01") + pd.to_timedelta(number, unit="D"))


def plain(rng, n_dialogues):
    return by_day(sound_votes(rng, n_dialogues))


def two_raters(rng, n_dialogues):
    """Two people, of whom one did not finish."""
    votes = sound_votes(rng, n_dialogues, n_people=3)
    missed = votes["rater"].eq("person-1") & (rng.random(len(votes)) < 0.3)
    return votes[votes["rater"].ne("person-2") & ~missed]


def asked_again(rng, n_dialogues):
    """The judges were asked again later, and most answers are the same."""
    return once_more(sound_votes(rng, n_dialogues).drop(columns="repeat"), rng)


def joins_late(rng, n_dialogues):
    """The weakest author is in later dialogues alone."""
    votes = plain(rng, n_dialogues)
    new = votes["responder_b"].eq("helper")
    return votes[~new | (votes["date"] > votes["date"].median())]


def surer_judges(rng, n_dialogues):
    """Judges decide more clearly than people, and the best author is of one's family."""
    return sound_votes(rng, n_dialogues, sure=6.0)


def mixed(rng, n_dialogues):
    """A file of some kind: what may differ between sound files is drawn.

    Authors, dimensions, ties, how clearly judges decide, uneven raters, one order or both, a second
    date, an author who joins late, and later topics that suit others, as people say too.
    """
    dimensions = ["overall", "warmth", "safety"][: rng.integers(1, 4)]
    ties, sure = rng.choice([0.05, 0.3]), rng.choice([2.0, 6.0])
    once, again, late, other_topics = rng.random(4) < 0.25
    names = np.array([*STRENGTH, "qwen-2"][: rng.integers(3, 6)])
    strength = np.sort(rng.normal(0, 0.7, len(names)))[::-1]
    quality = strength + rng.normal(0, 1.2, (n_dialogues, len(names)))
    quality[n_dialogues // 2 :] += other_topics * (rng.permutation(strength) - strength)
    one, other = np.triu_indices(len(names), 1)
    dialogue = np.repeat(np.arange(n_dialogues), len(one))
    a, b = np.tile(one, n_dialogues), np.tile(other, n_dialogues)
    met = ~(late & (b == len(names) - 1) & (dialogue < n_dialogues // 2))
    dialogue, a, b = dialogue[met], a[met], b[met]
    busy = np.minimum(rng.dirichlet(np.full(6, 2.0)), 0.3)
    pairs = pd.DataFrame({"responder_a": names[a], "responder_b": names[b]})
    pairs["history_id"] = [f"h{number}" for number in dialogue]
    asked = [
        "one",
        "second",
        "third",
        *[(name, order) for name in JUDGES for order in ("ab", "ba")],
    ]
    parts = []
    for dimension in dimensions:
        seen = quality + rng.normal(0, 0.5, quality.shape)
        gap = seen[dialogue, a] - seen[dialogue, b]
        chosen = [rng.choice(6, 3, replace=False, p=busy / busy.sum()) for _ in dialogue]
        for number, who in enumerate(asked):
            order = rng.choice(["ab", "ba"], len(gap))
            if number < 3:
                rater, kind, log_odds = np.array(chosen)[:, number], "human", 1.6 * gap
                rater = np.char.add("person-", rater.astype(str))
            else:
                rater, kind = who[0], "model"
                order = order if once else np.full(len(gap), who[1])
                log_odds = sure * gap + np.where(order == "ab", 0.2, -0.2)
                if once and who[1] == "ba":
                    continue
            won = np.where(rng.random(len(gap)) < 1 / (1 + np.exp(-log_odds)), "a", "b")
            won = np.where(rng.random(len(gap)) < ties, "tie", won)
            about = {"rater": rater, "rater_kind": kind, "order": order, "verdict": won}
            parts.append(pairs.assign(dimension=dimension, **about))
    votes = pd.concat(parts, ignore_index=True).assign(state="valid", simulated=True)
    votes = by_day(votes.assign(dialogue_id=votes["history_id"]))
    return once_more(votes, rng) if again else votes


def once_more(votes, rng):
    """Ask the judges again at a later date; one answer in twenty is another."""
    both = votes.assign(date=pd.Timestamp("2026-01-01"))
    more = both[both["rater_kind"].eq("model")].assign(date=pd.Timestamp("2026-03-01"))
    by_chance = pd.Series(rng.choice(["a", "b"], len(more)), more.index)
    more["verdict"] = more["verdict"].mask(rng.random(len(more)) < 0.05, by_chance)
    return pd.concat([both, more], ignore_index=True)


SOUND = (plain, two_raters, asked_again, joins_late, surer_judges, mixed)

FAULTS = {
    never_reads: "reading",
    coin: "reading",
    orders_lost: "reading",
    one_rater: "carried",
    one_of_many: "carried",
    names_alone: "names",
    disconnected: "board",
    one_dialogue: "dialogues",
    mostly_one_dialogue: "dialogues",
    all_ties: "ties",
    family: "family",
    drift: "drift",
    doubled: "doubled",
    few_dialogues: "dialogues",
    in_safety(few_dialogues): "dialogues",
    in_safety(one_rater): "carried",
    in_safety(all_ties): "ties",
    in_safety(never_reads): "reading",
    in_safety(names_alone): "names",
    in_safety(drift): "drift",
}
