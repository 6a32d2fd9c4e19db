"""Cut the vendored Chinese font from Noto Sans CJK.

Run as `python -m data.make.cjk_font NotoSansCJK-Regular.ttc`.

The source is Debian's package `fonts-noto-cjk` (SIL Open Font License 1.1). The cut holds the
characters of `data/heartbench/names.csv`, the words below, and nothing else.
"""

import sys
from pathlib import Path

from fontTools import subset
from fontTools.ttLib import TTCollection

ROOT = Path(__file__).resolve().parents[2]
WORDS = (
    "维度能力场景题目条目难度普通困难得分总分平均加分扣分一票否决未填中文的是个和与，。、"
    "；：（）《》“”？！—…·"
)


def main() -> None:
    """Write data/fonts/HeartBenchNamesSC.otf."""
    names = (ROOT / "data" / "heartbench" / "names.csv").read_text(encoding="utf-8")
    characters = sorted({ord(character) for character in names + WORDS if ord(character) > 0x2000})
    fonts = TTCollection(sys.argv[1]).fonts
    font = next(font for font in fonts if font["name"].getDebugName(1) == "Noto Sans CJK SC")
    options = subset.Options(
        layout_features=[],
        name_IDs=[0, 1, 2, 3, 4, 5, 6, 13, 14],
        hinting=False,
        desubroutinize=True,
    )
    cutter = subset.Subsetter(options)
    cutter.populate(unicodes=characters)
    cutter.subset(font)
    for record in font["name"].names:
        if record.nameID in (1, 4, 16):
            record.string = "HeartBench Names SC"
        if record.nameID == 6:
            record.string = "HeartBenchNamesSC-Regular"
    target = ROOT / "data" / "fonts" / "HeartBenchNamesSC.otf"
    font.save(target)
    print(
        f"{target.relative_to(ROOT)}: {len(characters)} characters, {target.stat().st_size:,} bytes"
    )


if __name__ == "__main__":
    main()
