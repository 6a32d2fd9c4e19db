"""The front page: each number on it is a result of a chapter, and a link beside it leads there."""

import re

import pandas as pd
import pytest

import heart_utils
from heart_utils.report.tables import read_results
from heart_utils.runs import find_root, open_run
from tools.notebooks import read_cells
from tools.pin import read_pinned

ROOT = find_root()
PARAGRAPHS = (ROOT / "book" / "intro.md").read_text(encoding="utf-8").split("\n\n")
GLUED = re.compile(r"\{glue:text\}`\.\./notebooks/(\w+)\.ipynb::([\w-]+)(?::[^`]+)?`")
LINKED = re.compile(r"\{ref\}`[^`<]*<?([\w-]+)>?`")


def test_each_finding_on_the_front_page_is_a_result_of_one_cell_of_a_chapter_that_is_linked_beside_it():
    keys = [(chapter, key, text) for text in PARAGRAPHS for chapter, key in GLUED.findall(text)]
    assert len(keys) >= 5
    for chapter, key, text in keys:
        cells = read_cells(ROOT / "notebooks" / f"{chapter}.ipynb")
        code = [cell["source"] for cell in cells if cell["cell_type"] == "code"]
        assert sum(f'"{key}":' in source for source in code) == 1, f"{chapter} has no one {key}"
        labels = {
            label
            for cell in cells
            for label in re.findall(r"^\(([\w-]+)\)=$", cell["source"], flags=re.MULTILINE)
        }
        assert labels & {*LINKED.findall(text)}, f"beside {key}, link a section of {chapter}"


def test_nothing_glued_on_the_front_page_is_written_in_a_way_that_the_test_above_does_not_see():
    text = "\n\n".join(PARAGRAPHS)
    assert text.count("{glue") == len(GLUED.findall(text))
    assert f"Version {heart_utils.__version__}." in text


HOLDS = {
    "near the share against crowd workers; for therapists": lambda at: (
        at("who_supports_better", "heart-gap") < 5
        and at("who_supports_better", "share-therapists-low")
        < 50
        < at("who_supports_better", "share-therapists-high")
    ),
    "cannot be checked; the one open look": lambda at: at("heart", "twin-reach") > 20,
    "cannot be checked; agreement alone says little": lambda at: (
        at("do_judges_agree", "n-cells-ahead") < at("do_judges_agree", "n-cells") / 2
    ),
    "counts hold; its judge prompt swaps": lambda at: (
        (at("heart", "n-regular"), at("heart", "n-adversarial")) == (280, 20)
    ),
    "sixteen are too few: the interval": lambda at: (
        float(at("does_it_scale", "bw-ends").split()[0]) < 0.1
    ),
}
"""A verdict on the front page -> whether the numbers of the chapters bear it out."""

ANSWER, JUDGES, SCALE, RULE = (
    "who_supports_better",
    "do_judges_agree",
    "does_it_scale",
    "heartbench",
)
TURN = "does_one_turn_tell"
WORDS = {
    "Of two recipients told the same, the one with the model's reply": (
        lambda at: at(ANSWER, "heard-person-low") > 50,
        {"heard-person-low": 49.0},
    ),
    "Against crowd workers models get": (
        lambda at: at(ANSWER, "share-strangers-low") > 50,
        {"share-strangers-low": 49.0},
    ),
    "against Reddit commenters": (
        lambda at: at(ANSWER, "share-commenters-low") > 50,
        {"share-commenters-low": 49.0},
    ),
    ": not known. {measured}": (
        lambda at: at(ANSWER, "share-trained-low") < 50 < at(ANSWER, "share-trained-high"),
        {"share-trained-low": 51.0},
    ),
    "**No difference is shown.**": (
        lambda at: at(ANSWER, "heard-true-low") < 50 < at(ANSWER, "heard-true-high"),
        {"heard-true-high": 49.0},
    ),
    "The label costs an AI": (
        lambda at: min(at(ANSWER, "cost-low"), at(ANSWER, "gain-low")) > 0,
        {"cost-low": -0.1},
    ),
    "Therapists' replies were appropriate in": (
        lambda at: (
            at(ANSWER, "therapists-right") > at(ANSWER, "best-right")
            and at(ANSWER, "share-therapists") < 50
        ),
        {"best-right": 99.0},
    ),
    "does not exclude one half": (
        lambda at: at(ANSWER, "share-therapists-low") < 50 < at(ANSWER, "share-therapists-high"),
        {"share-therapists-high": 49.0},
    ),
    "published comparisons": (
        lambda at: at(ANSWER, "papers-for-models") > at(ANSWER, "n-quoted") / 2,
        {"papers-for-models": 3},
    ),
    "**That onlookers know what a recipient felt is not shown.**": (
        lambda at: at(JUDGES, "felt-low") < 0 < at(JUDGES, "felt-high"),
        {"felt-low": 0.1},
    ),
    "Model judges beat a guess from the authors' names": (
        lambda at: (
            at(JUDGES, "n-cells-behind") < at(JUDGES, "n-cells-ahead") < at(JUDGES, "n-cells") / 2
        ),
        {"n-cells-ahead": 20},
    ),
    "to a reply that does nothing": (
        lambda at: at(RULE, "hb-nothing") > 10 and at(RULE, "hb-everything") > 80,
        {"hb-nothing": 0.0},
    ),
    "tells roughly who is strong": (
        lambda at: at(TURN, "one-rho") > 0.5 and at(TURN, "changed-1") > 2 * at(TURN, "changed-4"),
        {"one-rho": 0.2},
    ),
    "the later one does better with a simulated seeker": (
        lambda at: at(SCALE, "newer-low") > 0,
        {"newer-low": -1.0},
    ),
    "More parameters, where they are published, are not shown to help": (
        lambda at: at(SCALE, "large-low") < 0 < at(SCALE, "large-high"),
        {"large-low": 1.0},
    ),
    "between rating and time fits anything from": (
        lambda at: float(at(SCALE, "bw-ends").split()[0]) < 0.1,
        {"bw-ends": "0.30 to 0.82"},
    ),
}
"""Words of the cards and the two lines below the figure -> whether the numbers bear them out, and one that would not."""


@pytest.fixture(scope="module")
def at():
    executed = {
        path.stem[3:]: read_results(path)
        for path in (ROOT / "build" / "executed" / "sample").glob("[01]*.ipynb")
    }
    if not executed:
        pytest.skip("needs book: run `make book`")
    return lambda chapter, key: executed[chapter][key]


def test_each_verdict_on_heart_s_claims_follows_from_the_numbers_of_the_chapters(at):
    [table] = [text for text in PARAGRAPHS if text.startswith("| HEART claims")]
    verdicts = [row.split("|")[3].strip() for row in table.splitlines()[2:]]
    assert len(verdicts) == len(HOLDS) == 5
    for verdict, (start, holds) in zip(verdicts, HOLDS.items(), strict=True):
        assert verdict.startswith(start)
        assert holds(at), verdict


@pytest.mark.parametrize("words", WORDS)
def test_the_words_of_a_card_follow_from_the_numbers_of_the_chapters_and_not_from_a_spoiled_one(
    at, words
):
    holds, spoiled = WORDS[words]
    assert words in "".join(PARAGRAPHS)
    assert holds(at)
    assert not holds(lambda chapter, key: spoiled.get(key, at(chapter, key)))


STUDIES = {
    "heard-person": ("Yin et al.", "Yin et al. 2024"),
    "heard-true": ("Yin et al.", "Yin et al. 2024"),
    "share-strangers": ("Welivita and Pu", "Welivita and Pu 2024"),
    "share-commenters": ("RESORT", "Zhan et al. 2024"),
    "share-therapists": ("Moore et al.", "Moore et al. 2025"),
}
"""A win share on the cards -> the study on its chip, and in the table of effects."""


@pytest.mark.parametrize("key", STUDIES)
def test_a_win_share_stands_before_the_chip_of_the_study_that_has_it_in_the_table(at, key):
    chip, study = STUDIES[key]
    [card] = [text for text in PARAGRAPHS if f"::{key}:" in text and "grid-item-card" in text]
    after = card.split(f"::{key}:", maxsplit=1)[1]
    assert chip in re.search(r"\{measured\}`([^`]+)`", after)[1]
    effects = open_run("sample").read("effects").set_index("study").loc[study]
    assert (100 * effects["win_share"] - at(ANSWER, key)).abs().min() < 1e-6


def test_the_papers_that_favour_people_are_about_whole_conversations_or_sessions():
    every = pd.read_csv(ROOT / "data" / "published" / "effects.csv")
    papers = every.query("favours == 'people'")
    assert papers["people"].str.contains("conversation|session").all()
    assert "all on whole conversations or sessions" in "".join(PARAGRAPHS)
    assert set(papers["read"]) == {"abstract", "press release"}
    [of_press] = papers.loc[papers["read"] == "press release", "people"]
    assert of_press == "one therapist, one session"
    reviews = every["people"].str.contains("review") & (every["favours"] == "models")
    assert reviews.sum() == 1
    assert "(one is a review)" in "".join(PARAGRAPHS)


def test_the_caption_of_the_forest_says_what_its_intervals_say(at):
    """Models beat commenters and crowd workers, against trained people both are possible,
    therapists are ahead."""
    lines = (
        open_run("sample")
        .read("effects")
        .query("evidence == 'measured' and models != 'GPT-4 told what empathy is'")
    )
    ends = lines.set_index(["people", "models", "label"])[["ci_low", "ci_high"]]
    side = (ends["ci_low"] > 0.5).astype(int) - (ends["ci_high"] < 0.5)
    assert side.to_dict() == {
        ("another participant", "Bing Chat, 2023", "person"): 1,
        ("another participant", "Bing Chat, 2023", "ai"): 1,
        ("another participant", "Bing Chat, 2023", "true"): 0,
        ("crowd workers", "GPT-4", "hidden"): 1,
        ("people trained for the task", "GPT-4 Turbo, Llama 2, Mistral", "hidden"): 0,
        ("Reddit commenters", "GPT-4 Turbo, Llama 2, Mistral", "hidden"): 1,
        ("therapists", "five models", "unclear"): 0,
        ("therapists", "five therapy bots", "unclear"): 0,
    }


def test_the_exchange_beside_the_figure_is_one_of_the_sample():
    data = ROOT / "data"
    histories = pd.read_json(data / "sample" / "histories.jsonl", lines=True)
    replies = pd.read_json(data / "sample" / "replies.jsonl", lines=True)
    [turns] = histories.loc[histories["history_id"] == "sample-s07", "turns"]
    [drafted] = replies.loc[replies["history_id"] == "sample-s07", "text"]
    probes = (data / "prompts.yaml").read_text(encoding="utf-8")
    text = "\n\n".join(PARAGRAPHS)
    [asked] = re.findall(r"^> (.+)$", text, flags=re.MULTILINE)[:1]
    assert turns[-1]["text"].endswith(asked)
    assert f"**A.** {drafted}" in text
    [fits_anybody] = re.findall(r"^\*\*B\.\*\* (.+)$", text, flags=re.MULTILINE)
    assert fits_anybody in " ".join(probes.split())


README_FINDINGS = (
    (
        "on a scale from 1 to 7, {01_who_supports_better/felt-model} by a model, "
        "{01_who_supports_better/felt-person} by another person"
    ),
    (
        "felt better heard in {01_who_supports_better/heard-true} % of cases "
        "({01_who_supports_better/heard-true-low} to {01_who_supports_better/heard-true-high})"
    ),
    (
        "Models win {01_who_supports_better/share-commenters} % of comparisons with Reddit"
        " commenters ({01_who_supports_better/share-commenters-low} to"
        " {01_who_supports_better/share-commenters-high})"
    ),
    (
        "and {01_who_supports_better/share-strangers} % with crowd workers"
        " ({01_who_supports_better/share-strangers-low} to"
        " {01_who_supports_better/share-strangers-high})"
    ),
    (
        "the share is {01_who_supports_better/share-trained} % and not known"
        " ({01_who_supports_better/share-trained-low} to"
        " {01_who_supports_better/share-trained-high} %)"
    ),
    (
        "it is {01_who_supports_better/share-therapists} % against therapists, and not known"
        " ({01_who_supports_better/share-therapists-low} to"
        " {01_who_supports_better/share-therapists-high})"
    ),
    "in {06_do_judges_agree/n-cells-ahead} of {06_do_judges_agree/n-cells} cases",
    "and less in {06_do_judges_agree/n-cells-behind}.",
)
"""What the README says, with the names of its numbers among those that are pinned."""


@pytest.mark.parametrize("finding", README_FINDINGS)
def test_each_number_of_the_readme_is_the_one_that_is_pinned(finding):
    pinned = read_pinned(ROOT)
    expected = re.sub(r"\{([^}]+)\}", lambda name: pinned[name[1]], finding)
    assert expected in (ROOT / "README.md").read_text(encoding="utf-8")
