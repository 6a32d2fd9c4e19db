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
    "load_histories": "sources.load",
    "load_replies": "sources.load",
    "load_scores": "sources.load",
    "load_tallies": "sources.load",
    "load_verdicts": "sources.load",
    "scores_to_verdicts": "sources.pairs",
    "collect_replies": "judging.respond",
    "pair_replies": "judging.design",
    "collect_verdicts": "judging.judge",
    "Ratings": "ratings.ratings",
    "combine_orders": "ratings.ratings",
    "fit_boards": "ratings.ratings",
    "fit_ratings": "ratings.ratings",
    "bootstrap_ci": "ratings.resampling",
    "twin_contrasts": "ratings.contrasts",
    "fit_judge_aware": "ratings.judge_aware",
    "head_to_head": "ratings.consistency",
    "consistency": "ratings.consistency",
    "find_fragility": "ratings.fragility",
    "minimum_gap": "simulate.power",
    "plan_study": "simulate.power",
    "write_leaderboard": "report.leaderboard",
    "methods": "report.methods",
    "plot_boards": "report.figures",
    "plot_intervals": "report.figures",
    "plot_leaderboard": "report.figures",
    "Agreement": "agreement.agreement",
    "AgreementError": "agreement.agreement",
    "agreement_with_baselines": "agreement.baselines",
    "calibrate_abstention": "agreement.panel",
    "cohen_kappa": "agreement.agreement",
    "gwet_ac": "agreement.agreement",
    "icc": "agreement.agreement",
    "krippendorff_alpha": "agreement.agreement",
    "pairwise_agreement": "agreement.agreement",
    "cheapest_design": "agreement.generalizability",
    "variance_components": "agreement.generalizability",
    "check_saving": "simulate.coverage",
    "label_some": "simulate.coverage",
    "prediction_powered_ratings": "agreement.prediction_powered",
    "simulate_study": "simulate.study",
    "score_rubric": "heartbench.formula",
    "rubric_board": "heartbench.formula",
    "lint_rule": "heartbench.linter",
    "lint_rubric": "heartbench.linter",
    "calibrate_scores": "scores",
    "sweep_weights": "scores",
    "compare_anytime": "gate",
    "compare_responders": "gate",
    "run_gate": "report.gate_report",
    "read_glued": "report.provenance",
}

__all__ = [*_PUBLIC, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
