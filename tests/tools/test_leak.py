"""No word of a text that may not be passed on stands in what is published."""

import gzip
import json
import subprocess
import tarfile

import pandas as pd
import pytest

from heart_utils.runs import find_root
from heart_utils.tables import DataError
from tools.leak import WITHHELD, Withheld, find_leaks, read_published, withheld_texts
from tools.release import zip_folder

ROOT = find_root()
SECRET = "I told nobody that the dog's bed still stands in the hall"


@pytest.fixture(scope="module")
def secret():
    return Withheld([SECRET, "老邻居把钥匙放在红色花盆下面，每个星期三都忘记浇水。"])


WAYS = {
    "plain": "She wrote: nobody that the dog's bed still stands in.",
    "capitals and dashes": "NOBODY -- that the dog's bed; still STANDS in",
    "a curly apostrophe": "nobody that the dog\u2019s bed still stands in",
    "an entity": "nobody that the dog&#8217;s bed still&nbsp;stands in",
    "tags between words": (
        "nobody that <em>the</em> dog's<br/>bed <span class='x y z'>still</span> stands in"
    ),
    "an attribute": '<img alt="nobody that the dog&#39;s bed still stands in">',
    "JSON in a script": (
        '<script>var t = "nobody that the dog\\u2019s\\nbed still stands in"</script>'
    ),
    "Chinese": "她说：邻居把钥匙放在红色花盆下面，每个星期三。",
}


@pytest.mark.parametrize("way", WAYS)
def test_eight_words_are_found_however_they_are_written(way, secret):
    assert [leak.file for leak in find_leaks([("page.html", WAYS[way])], secret)] == ["page.html"]


FREE = {
    "seven words": "nobody that the dog's bed still stands",
    "another word among them": "nobody that the dog's old bed still stands in",
    "another order": "in stands still bed dog's the that nobody",
    "fifteen characters": "邻居把钥匙放在红色花盆下面每个",
    "two texts": "stands in the hall 老邻居把钥匙放",
}


@pytest.mark.parametrize("case", FREE)
def test_less_is_not_held_against_anybody(case, secret):
    assert find_leaks([("page.html", FREE[case])], secret) == []


def test_a_leak_names_its_file_its_first_run_and_how_many_and_ends_with_its_text(secret):
    [leak] = find_leaks([("a.md", "all is well"), ("b.md", SECRET)], secret)
    expected = ("b.md", "i told nobody that the dogs bed still", 5)
    assert (leak.file, leak.words, leak.n_runs) == expected
    apart = Withheld(["one two three four five", "six seven eight nine ten"])
    assert apart.find("one two three four five six seven eight nine ten") == (0, "")


def test_without_the_texts_it_is_said_how_to_get_them(tmp_path, monkeypatch):
    monkeypatch.setenv("HEART_DATA_MIRROR", str(tmp_path))
    with pytest.raises(DataError, match="esconv"):
        withheld_texts()


@pytest.fixture(scope="module")
def withheld(mirror):
    return withheld_texts()


@pytest.mark.mirror
@pytest.mark.slow
def test_the_withheld_sets_are_read_whole(withheld, mirror):
    """A turn of ESConv, of HEART and of HeartBench, a question of MentalAlign, and a reply of each
    study."""
    dialogue = json.loads(
        (mirror / "esconv" / "valid.json").read_text(encoding="utf-8").splitlines()[-1]
    )
    rewrite = json.loads(
        (mirror / "heart" / "dialogues_adversarial.json").read_text(encoding="utf-8")
    )[-1]
    item = json.loads(
        (mirror / "heartbench" / "question_all.jsonl").read_text(encoding="utf-8").splitlines()[-1]
    )
    question = pd.read_excel(mirror / "mentalalign70k" / "Human_judge.xlsx", engine="calamine")[
        "context"
    ].iloc[-1]
    texts = [
        max((turn["text"] for turn in dialogue["dialog"]), key=len),
        max(rewrite["dialogue_history"], key=len),
    ]
    texts += [max((line["content"] for line in item["rubric"]), key=len), question]
    texts.append(
        pd.read_csv(mirror / "welivita" / "dataset_and_ratings.csv")["response_human"].iloc[-1]
    )
    posts = json.loads(
        (mirror / "resort" / "human_eval_annotations_cleaned.json").read_text(encoding="utf-8")
    )
    texts += [
        posts[-1]["Reddit Post"],
        pd.read_csv(mirror / "therapists" / "all_combined.csv")["model_response"].iloc[-1],
    ]
    assert len(texts) == len(WITHHELD)
    assert all(withheld.find(text)[0] for text in texts)


@pytest.mark.mirror
@pytest.mark.slow
def test_the_book_and_the_source_hold_no_eight_words_of_a_withheld_text(withheld, tmp_path):
    """In the archives that `make release` packs, of the pages and of all files that are
    committed."""
    html = ROOT / "build" / "html"
    if not (html / "index.html").is_file():
        pytest.skip("needs book: run `make book`")
    book, source = tmp_path / "book.zip", tmp_path / "source.tar"
    book.write_bytes(zip_folder(html, prefix="book", when=0))
    subprocess.run(
        ["git", "-C", str(ROOT), "archive", "--format=tar", "--output", str(source), "HEAD"],
        check=True,
    )
    for archive, expected in (
        (book, "book/book/intro.html"),
        (source, "data/sample/histories.jsonl"),
    ):
        published = dict(read_published(archive))
        assert expected in published
        assert find_leaks(published.items(), withheld) == []


def test_words_are_found_in_any_kind_of_file_and_in_archives(tmp_path, secret):
    """A workbook, a table with tabs, a gzipped file, a folder, the same zipped and in a tar."""
    words = WAYS["plain"]
    pd.DataFrame({"reason": [words]}).to_excel(tmp_path / "a.xlsx")
    (tmp_path / "b.tsv").write_text(words)
    (tmp_path / "c.csv.gz").write_bytes(gzip.compress(words.encode()))
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "e.tex").write_text(words)
    (tmp_path / "d" / "picture.png").write_bytes(words.encode())
    (tmp_path / "f.zip").write_bytes(zip_folder(tmp_path / "d", prefix="x", when=0))
    with tarfile.open(tmp_path / "g.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "d", "y")
    found = [leak.file for leak in find_leaks(read_published(tmp_path), secret)]
    names = ["a.xlsx", "b.tsv", "c.csv.gz", "d", "f.zip", "g.tar.gz"]
    assert [name.split("/")[0] for name in found] == names
    for name, inside in (("d", "e.tex"), ("f.zip", "x/e.tex"), ("g.tar.gz", "y/e.tex")):
        leaks = find_leaks(read_published(tmp_path / name), secret)
        assert [leak.file for leak in leaks] == [inside]
