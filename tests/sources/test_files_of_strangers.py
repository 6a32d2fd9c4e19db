"""Files that were made to do harm: each is refused by one sentence, within bounded memory."""

import gzip
import json
import subprocess
import sys
import zipfile

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from heart_utils.settings import read_yaml
from heart_utils.sources.load import load_verdicts
from heart_utils.tables import DataError

MEGABYTE = b"x" * 1_000_000
READ_IN_A_CHILD = """
import resource, sys
from heart_utils.tables import DataError
from heart_utils.sources.load import load_verdicts
try:
    load_verdicts(sys.argv[1])
except DataError as error:
    print(error)
# that of a started process counts the one that started it, too
print(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)
"""
VOTE = {
    "history_id": "h",
    "responder_a": "x",
    "responder_b": "y",
    "rater": "r",
    "rater_kind": "human",
    "verdict": "a",
}


def refused(file):
    """What is said of a file, and the megabytes that reading it took, the child's apart."""
    done = subprocess.run(
        [sys.executable, "-c", READ_IN_A_CHILD, str(file)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-300:]
    *said, own, child = done.stdout.splitlines()
    return "\n".join(said), int(own) // 1024, int(child)


def workbook(file, rows, strings=()):
    """Write the few parts that an Excel file must have."""
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006"
    relations = f'<Relationships xmlns="{package}/relationships">'
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{package}/content-types"/>',
        "_rels/.rels": f'{relations}<Relationship Id="rId1" Type="{office}/officeDocument"'
        ' Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{main}" xmlns:r="{office}"><sheets>'
        '<sheet name="s" sheetId="1" r:id="rId1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f"{relations}"
        f'<Relationship Id="rId1" Type="{office}/worksheet" Target="worksheets/sheet1.xml"/>'
        f'<Relationship Id="rId2" Type="{office}/sharedStrings" Target="sharedStrings.xml"/>'
        "</Relationships>",
        "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{main}"><sheetData>{"".join(rows)}'
        "</sheetData></worksheet>",
        "xl/sharedStrings.xml": f'<sst xmlns="{main}">'
        + "".join(f"<si><t>{text}</t></si>" for text in strings)
        + "</sst>",
    }
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
    return file


def cell(address, number):
    return f'<c r="{address}" t="s"><v>{number}</v></c>'


def test_a_workbook_is_read_in_a_process_of_its_own(tmp_path):
    words = [*VOTE, *VOTE.values()]
    rows = []
    for row in (1, 2):
        numbered = enumerate("ABCDEF", 6 * (row - 1))
        cells = "".join(cell(f"{column}{row}", number) for number, column in numbered)
        rows.append(f'<row r="{row}">{cells}</row>')
    table = load_verdicts(workbook(tmp_path / "votes.xlsx", rows, words))
    assert table["verdict"].tolist() == ["a"]


@pytest.mark.parametrize("kind", ["far apart", "one long text in each cell", "unaddressed"])
def test_a_workbook_that_takes_more_memory_than_it_may_is_refused(tmp_path, kind):
    if kind == "one long text in each cell":
        rows = [f'<row r="{n}">{cell(f"A{n}", 0)}</row>' for n in range(1, 200_001)]
        strings = ["x" * 32_000]
    else:
        far = cell("XFD1048576", 0) if kind == "far apart" else "<c/>" * 16_383 + "<c><v>1</v></c>"
        rows = ["<row r='1'><c><v>1</v></c></row>", f'<row r="1048576">{far}</row>']
        strings = ["a"]
    file = workbook(tmp_path / "bomb.xlsx", rows, strings)
    said, own, child = refused(file)
    assert said.startswith(
        f"{file}: reading its {file.stat().st_size:,} bytes takes more than 3,000,000,000"
    )
    assert own < 400
    assert child < 3_100


def test_a_workbook_whose_parts_unpack_to_a_gigabyte_is_refused_before_it_is_read(tmp_path):
    file = tmp_path / "long.xlsx"
    with (
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("xl/worksheets/sheet1.xml", "w") as part,
    ):
        for _ in range(200):
            part.write(MEGABYTE)
    said, own, child = refused(file)
    assert "bytes unpack to more than 32,000,000" in said
    assert own < 400
    assert child == 0


@pytest.mark.parametrize("name", ["bomb.eval", "bomb.csv.gz", "bomb.json.zst"])
def test_what_unpacks_to_a_gigabyte_is_refused_within_little_memory(tmp_path, name):
    file = tmp_path / name
    if name.endswith(".eval"):
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("header.json", json.dumps({"version": 2, "eval": {}}))
            for number in range(20):
                archive.writestr(f"samples/{number}.json", b'"' + 10 * MEGABYTE + b'"')
    else:
        opened = gzip.open if name.endswith(".gz") else zstandard.open
        with opened(file, "wb") as packed:
            for _ in range(400):  # piece by piece, since a child starts with its parent's memory
                packed.write(MEGABYTE)
    said, own, _ = refused(file)
    assert said.startswith(f"{file}: its {file.stat().st_size:,} bytes unpack to more than")
    assert own < 400


def test_an_archive_whose_ratio_is_that_of_votes_is_read(tmp_path):
    rows = "".join(json.dumps({**VOTE, "history_id": f"h{number}"}) + "\n" for number in range(500))
    file = tmp_path / "votes.jsonl.gz"
    file.write_bytes(gzip.compress(rows.encode(), mtime=0))
    assert len(load_verdicts(file)) == 500


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("deep.json", "[" * 100_000 + "]" * 100_000),
        ("deep.json", '[{"a":' + '{"a":' * 300 + "1" + "}" * 300 + "}]"),
        ("deep.jsonl", '{"a":' * 100_000 + "1" + "}" * 100_000),
    ],
)
def test_json_that_is_nested_too_deep_is_refused(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match="nested deeper than a hundred levels"):
        load_verdicts(tmp_path / name)


@pytest.mark.parametrize("within", [True, False])
def test_objects_with_keys_of_their_own_make_no_table_larger_than_memory(tmp_path, within):
    objects = [{f"k{row}-{key}": 1 for key in range(50)} for row in range(2_000)]
    file = tmp_path / "wide.json"
    file.write_text(json.dumps([{"d": one} for one in objects] if within else objects))
    with pytest.raises(DataError, match="2,000 rows of 100,000 columns, more than 50,000,000"):
        load_verdicts(file)


def test_a_parquet_file_of_few_bytes_and_many_rows_is_refused(tmp_path):
    file = tmp_path / "long.parquet"
    pq.write_table(pa.table({"a": pa.nulls(51_000_000)}), file)
    with pytest.raises(DataError, match="51,000,000 rows of 1 columns"):
        load_verdicts(file)


def test_a_cell_as_long_as_a_library_is_refused_and_names_its_row(tmp_path):
    long = pd.DataFrame([VOTE, {**VOTE, "history_id": "b-" * 600_000}])
    long.to_json(tmp_path / "votes.json", orient="records")
    for given in (tmp_path / "votes.json", long):
        with pytest.raises(DataError, match="row 1 holds a text of 1,200,000 characters in histo"):
            load_verdicts(given)
    long.to_csv(tmp_path / "votes.csv", index=False)
    with pytest.raises(DataError, match="row 1 holds a text of 1,200,000 characters in histo"):
        load_verdicts(tmp_path / "votes.csv")
    fits = pd.DataFrame([{**VOTE, "history_id": "b-" * 100_000}])
    assert len(load_verdicts(fits)) == 1  # and no pattern takes the square of its length


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "b0: &b0 [1, 1]"
            + "".join(f"\nb{n}: &b{n} [{','.join([f'*b{n - 1}'] * 9)}]" for n in range(1, 8)),
            "characters stand for more than 2,000,000",
        ),
        ("[" * 100_000 + "]" * 100_000, "nested deeper than 100 levels"),
        ("\n".join(" " * depth + "a:" for depth in range(500)), "nested deeper than 100 levels"),
        ("a: &a [*a]", "the alias a names nothing that ends before it"),
    ],
)
def test_yaml_that_unfolds_is_refused_before_it_is_built(tmp_path, text, said):
    file = tmp_path / "recipe.yaml"
    file.write_text(text)
    with pytest.raises(ValueError, match=f"recipe.yaml is not YAML: .*{said}"):
        read_yaml(file, dict, ValueError)


def test_yaml_with_a_few_aliases_is_read(tmp_path):
    file = tmp_path / "recipe.yaml"
    file.write_text("a: &x {p: 1}\nb: *x\nc: {<<: *x, q: 2}\n")
    assert read_yaml(file, dict, ValueError)["c"] == {"p": 1, "q": 2}
