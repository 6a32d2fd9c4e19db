"""HEART in the open: ratings, agreement and judging of emotional support by people and models.

The names below are the public ones. Each is loaded from its module on first use, so that importing
the package costs next to nothing.

Examples
--------
>>> import heart_utils
>>> heart_utils.open_run("sample").name
'sample'
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "check_table": "tables",
    "TableError": "tables",
    "open_run": "runs",
    "Run": "runs",
    "RunError": "runs",
    "load_histories": "collect.sources.load",
    "load_scores": "collect.sources.load",
    "load_tallies": "collect.sources.load",
    "load_verdicts": "collect.sources.load",
    "scores_to_verdicts": "collect.sources.pairs",
    "collect_replies": "collect.respond",
    "pair_replies": "collect.design",
    "collect_verdicts": "collect.judge",
    "Ratings": "analysis.ratings",
    "combine_orders": "analysis.ratings",
    "fit_boards": "analysis.ratings",
    "fit_ratings": "analysis.ratings",
    "bootstrap_ci": "analysis.resampling",
    "contrast_strengths": "analysis.contrasts",
    "twin_contrasts": "analysis.contrasts",
    "fit_judge_aware": "analysis.judge_aware",
    "fit_style": "analysis.style",
    "style_features": "analysis.style",
    "head_to_head": "analysis.head_to_head",
    "consistency": "analysis.consistency",
    "find_fragility": "analysis.fragility",
    "minimum_gap": "analysis.power",
    "plan_study": "analysis.power",
    "write_leaderboard": "report.leaderboard",
    "Agreement": "analysis.agreement",
    "AgreementError": "analysis.agreement",
    "cohen_kappa": "analysis.agreement",
    "gwet_ac": "analysis.agreement",
    "icc": "analysis.agreement",
    "krippendorff_alpha": "analysis.agreement",
    "pairwise_agreement": "analysis.agreement",
    "check_saving": "analysis.powered_check",
    "label_some": "analysis.powered_check",
    "prediction_powered_ratings": "analysis.prediction_powered",
    "simulate_study": "analysis.simulate",
    "score_rubric": "analysis.heartbench",
    "rubric_board": "analysis.rubric_board",
    "lint_rule": "analysis.linter",
    "lint_rubric": "analysis.linter",
    "calibrate_scores": "analysis.calibration",
    "sweep_weights": "analysis.scales",
    "compare_responders": "analysis.drops",
    "run_gate": "report.gate",
    "read_glued": "report.glued",
}

__all__ = [*_PUBLIC, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
