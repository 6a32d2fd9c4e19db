"""Files that were made to do harm: each is refused by one sentence, within bounded memory."""

import gzip
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from source_builders import write

from heart_utils.settings import read_yaml
from heart_utils.sources.load import load_verdicts
from heart_utils.tables import DataError

MEGABYTE = b"x" * 1_000_000
READ_IN_A_CHILD = """
import resource, sys
from heart_utils.tables import DataError
from heart_utils.sources.load import load_verdicts
for file in sys.argv[1:]:
    try:
        load_verdicts(file)
    except DataError as error:
        print(error, end=" ")
    # that of a started process counts the one that started it, too
    print(open("/proc/self/status").read().split("VmHWM:")[1].split()[0], end=" ")
    print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)
"""
VOTE = {"history_id": "h", "responder_a": "x", "responder_b": "y", "rater": "r"}
VOTE |= {"rater_kind": "human", "verdict": "a"}


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


def write_bombs(folder):
    """Files of few bytes that unpack to a gigabyte, and workbooks that take as much to read."""
    one, far = "<row r='1'><c><v>1</v></c></row>", '<row r="1048576">{}</row>'
    apart = far.format(cell("XFD1048576", 0))
    unaddressed = far.format("<c/>" * 16_383 + "<c><v>1</v></c>")
    long = [f'<row r="{n}">{cell(f"A{n}", 0)}</row>' for n in range(1, 200_001)]
    zipped = {"compression": zipfile.ZIP_DEFLATED}
    with zipfile.ZipFile(folder / "parts.xlsx", "w", **zipped) as archive:
        archive.writestr("xl/worksheets/sheet1.xml", 200 * MEGABYTE)
    with zipfile.ZipFile(folder / "bomb.eval", "w", **zipped) as archive:
        archive.writestr("header.json", json.dumps({"version": 2, "eval": {}}))
        for number in range(20):
            archive.writestr(f"samples/{number}.json", b'"' + 10 * MEGABYTE + b'"')
    (folder / "bomb.csv.gz").write_bytes(gzip.compress(400 * MEGABYTE, 1))
    (folder / "bomb.json.zst").write_bytes(zstandard.compress(400 * MEGABYTE))
    workbook(folder / "apart.xlsx", [one, apart], ["a"])
    workbook(folder / "unaddressed.xlsx", [one, unaddressed], ["a"])
    workbook(folder / "long.xlsx", long, ["x" * 32_000])


UNPACKED = "bytes unpack to more than"
READING = "bytes takes more than 3,000,000,000"
BOMBS = {
    "parts.xlsx": UNPACKED,
    "bomb.eval": UNPACKED,
    "bomb.csv.gz": UNPACKED,
    "bomb.json.zst": UNPACKED,
}
BOMBS |= dict.fromkeys(("apart.xlsx", "unaddressed.xlsx", "long.xlsx"), READING)


def test_what_unpacks_to_a_gigabyte_is_refused_within_little_memory(tmp_path):
    write_bombs(tmp_path)
    files = [str(tmp_path / name) for name in BOMBS]
    done = subprocess.run(
        [sys.executable, "-c", READ_IN_A_CHILD, *files], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-300:]
    for said, file, words in zip(done.stdout.splitlines(), files, BOMBS.values(), strict=True):
        size = f"its {Path(file).stat().st_size:,} "
        assert said.startswith((f"{file}: {size}{words}", f"{file}: reading {size}{words}"))
        own, child = map(int, said.split()[-2:])
        assert own < 400_000
        assert child < (3_100 if words == READING else 1)  # and before any is read for the others


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


@pytest.mark.parametrize("name", ["votes.json", "votes.csv", ""])
def test_a_cell_as_long_as_a_library_is_refused_and_names_its_row(tmp_path, name):
    long = pd.DataFrame([VOTE, {**VOTE, "history_id": "b-" * 600_000}])
    with pytest.raises(DataError, match="row 1 holds a text of 1,200,000 characters in histo"):
        load_verdicts(write(tmp_path, name, long))
    fits = long.assign(history_id=["h", "b-" * 100_000])
    assert len(load_verdicts(fits)) == 2  # and no pattern takes the square of its length


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
        (
            "m0: &m0 {x: 1}"
            + "".join(
                f"\nm{n}: &m{n} {{<<: [{','.join([f'*m{n - 1}'] * 9)}]}}" for n in range(1, 9)
            ),
            "characters stand for more than 2,000,000",
        ),
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
