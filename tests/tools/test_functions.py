"""The pages of the public functions, and their list in the book."""

import re

import pytest

from heart_utils.runs import find_root
from tools import functions
from tools.flow import public_homes
from tools.functions import FUNCTIONS, list_names

ROOT = find_root()


@pytest.fixture(scope="module")
def pages():
    if not (ROOT / FUNCTIONS / "index.html").is_file():
        pytest.skip("needs functions: run `make api`")
    return sorted((ROOT / FUNCTIONS).glob("*.html"))


def test_every_public_name_is_listed_with_what_it_does_and_linked_where_its_page_is(
    tmp_path, monkeypatch
):
    for package in ("heart_utils", "heart_collect"):
        (tmp_path / package).symlink_to(ROOT / package)
    plain = list_names(tmp_path)
    (tmp_path / FUNCTIONS).mkdir(parents=True)
    (tmp_path / FUNCTIONS / "index.html").touch()
    linked = list_names(tmp_path)
    for name, home in public_homes().items():
        short = name.rpartition(".")[2]
        assert re.search(rf"^\| `{short}` \| [A-Z][^|]+\.", plain, re.M), short
        assert f'#{home}.{short}"><code>{short}</code></a> |' in linked
    assert "make api" in plain
    assert "make api" not in linked


def test_a_name_that_its_module_does_not_define_is_refused(monkeypatch):
    monkeypatch.setattr(functions, "public_homes", lambda: {"heart_utils.gone": "heart_utils.runs"})
    with pytest.raises(ValueError, match="heart_utils.runs defines no 'gone'"):
        list_names(ROOT)


def test_every_link_of_the_list_leads_to_a_function(pages):
    places = {
        page.name: set(re.findall(r'\bid="([^"]+)"', page.read_text(encoding="utf-8")))
        for page in pages
    }
    links = re.findall(r'href="../functions/([^#"]+)#([^"]+)"', list_names(ROOT))
    assert len(links) == len(public_homes())
    assert [link for link in links if link[1] not in places[link[0]]] == []


def test_nothing_on_the_pages_of_functions_is_fetched_from_elsewhere(pages):
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert not re.search(r'<(?:script|img|iframe)[^>]* src="(?:https?:)?//', text), page
        assert not re.search(r'<link[^>]* rel="stylesheet"[^>]* href="(?:https?:)?//', text), page
