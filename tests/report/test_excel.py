"""Tables as a workbook: what a spreadsheet reads back is what was in the table, and no cell is a
formula."""

import io
import re
import sys
import zipfile

import numpy as np
import openpyxl
import pandas as pd

from heart_utils.report import commands
from heart_utils.report.leaderboard import as_workbook


def test_what_is_read_back_is_what_was_written():
    table = pd.DataFrame(
        {
            "responder": ["x", "Ünï 中"],
            "rating": [1500.123456789, np.nan],
            "n": [1, 2],
            "sure": [True, False],
        }
    )
    file = io.BytesIO(as_workbook({"one": table, "two": table.head(1)}))
    pd.testing.assert_frame_equal(pd.read_excel(file, sheet_name="one", engine="calamine"), table)
    assert len(pd.read_excel(file, sheet_name="two", engine="calamine")) == 1


def test_no_text_is_a_formula_and_none_is_changed():
    texts = ["=1+1", "=HYPERLINK(1)", "@x", "+1", "-1", "plain"]
    file = io.BytesIO(as_workbook({"texts": pd.DataFrame({"=2": texts})}))
    cells = list(openpyxl.load_workbook(file)["texts"]["A"])
    assert [cell.value for cell in cells] == ["=2", *texts]
    assert {cell.data_type for cell in cells} == {"s"}


def test_what_a_cell_cannot_hold_is_written_as_text():
    odd = {
        "bell": ["\x07"],
        "list": [["a", 1]],
        "endless": [np.inf],
        "when": [pd.Timestamp("2026-01-09T10:00Z")],
    }
    file = io.BytesIO(as_workbook({"odd": pd.DataFrame(odd)}))
    row = pd.read_excel(file, keep_default_na=False, engine="calamine").iloc[0]
    assert row[["bell", "list", "when"]].tolist() == [
        "[U+0007]",
        "['a', 1]",
        "2026-01-09T10:00:00+00:00",
    ]
    assert str(row["endless"]) == "inf"


def test_nothing_in_a_workbook_says_when_it_was_written():
    with zipfile.ZipFile(io.BytesIO(as_workbook({"x": pd.DataFrame({"x": [1.5]})}))) as book:
        assert {entry.date_time[0] for entry in book.infolist()} == {1980}
        assert re.findall(rb">(\d{4})-\d\d-\d\dT", book.read("docProps/core.xml")) == [
            b"1980",
            b"1980",
        ]


def test_the_gate_writes_its_answer_as_a_workbook_or_says_what_to_install(
    tmp_path, monkeypatch, capsys
):
    rows = {"history_id": [f"c{n}" for n in range(30)], "verdict": ["b", "a", "a"] * 10}
    votes = pd.DataFrame(
        {**rows, "responder_a": "ann", "responder_b": "bot", "rater": "eve", "rater_kind": "model"}
    )
    votes.to_csv(tmp_path / "votes.csv", index=False)
    sides = [f"{tmp_path / 'votes.csv'}:{who}" for who in ("ann", "bot")]
    assert commands.heart_gate([*sides, "--xlsx", str(tmp_path / "gate.xlsx")]) == 3
    sheets = pd.read_excel(tmp_path / "gate.xlsx", sheet_name=None, engine="calamine")
    assert sheets["gate"]["outcome"].tolist() == ["cannot tell"]
    assert set(sheets["ratings"]["responder"]) == {"ann", "bot"}
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    assert commands.heart_gate([*sides, "--xlsx", str(tmp_path / "other.xlsx")]) == 2
    assert "openpyxl is not installed. It comes with the extra excel" in capsys.readouterr().err
    assert not (tmp_path / "other.xlsx").exists()
