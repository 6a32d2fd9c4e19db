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
    name: module
    for module, names in {
        "tables": "check_table TableError",
        "runs": "find_root may_publish open_run Run RunError strictest_licence",
        "scores": "average_scores calibrate_scores pairs_against_scores sweep_weights weigh_scores",
        "gate": "betting_bound compare_anytime compare_responders",
        "sources.catalogue": "DataUnavailableError",
        "sources.heart": "next_seeker_turns",
        "sources.load": (
            "describe_votes load_conversations load_histories load_replies load_scores"
            " load_verdicts scores_to_verdicts"
        ),
        "calls.records": "open_ledger",
        "calls.prices": "price",
        "judging.converse": "collect_conversations conversation_replies",
        "judging.design": "pair_replies",
        "judging.judge": "collect_verdicts plan_questions",
        "judging.probes": "profile_features",
        "judging.prompts": "load_codebooks load_protocol load_rubric prompt_hash",
        "judging.recipe": (
            "read_recipe recipe_comparisons recipe_histories recipe_responders RecipeError"
        ),
        "judging.respond": "collect_replies",
        "judging.steps": "recipe_conversations recipe_replies recipe_step",
        "judging.trained": "load_trained_judge train_judge",
        "judging.calibration": "calibrate_judge judge_identity load_calibration",
        "people.assignment": "assign_raters assign_writers check_balance choose_pairs study_cost",
        "people.raters": "add_people",
        "ratings.consistency": "consistency head_to_head",
        "ratings.contrasts": "twin_contrasts",
        "ratings.fragility": "find_fragility",
        "ratings.judge_aware": "fit_judge_aware",
        "ratings.pooling": "pool_strengths",
        "ratings.ratings": "fit_boards fit_ratings Ratings",
        "ratings.resampling": "bootstrap_ci estimate_rng",
        "ratings.spread": "simultaneous_quantile",
        "ratings.verdicts": "AgreementError combine_orders RatingsError won_by_a",
        "agreement.agreement": "Agreement pairwise_agreement",
        "agreement.baselines": "agreement_with_baselines estimate_ceiling",
        "agreement.generalizability": (
            "cheapest_design check_reliability score_differences variance_components win_scores"
        ),
        "agreement.kappa": "cohen_kappa gwet_ac icc judge_reliability krippendorff_alpha",
        "agreement.panel": "alternative_annotator_test calibrate_abstention effective_judges",
        "agreement.prediction_powered": "prediction_powered_ratings",
        "agreement.ranks": "order_changes rank_agreement track_recipients",
        "agreement.raters": "decide_exclusions ExclusionRule rate_writers rater_quality",
        "judges.halo": "measure_halo",
        "judges.position": "BiasError compare_answers feature_bias position_bias text_features",
        "judges.report_card": "describe_judges grade_probes",
        "judges.retest": "measure_drift price_of_repeats repeat_reliability",
        "judges.self_preference": "self_preference",
        "replies.codes": "code_by_words theme_overlap",
        "replies.sameness": "measure_overlap measure_sameness",
        "replies.scaling": "correlate_scale ScalingError spearman_interval",
        "replies.seekers": (
            "agree_with_outside describe_seekers probes_lose seeker_card tell_from_real"
            " told_by_raters"
        ),
        "replies.turns": (
            "describe_turns drift_by_turn path_by_turn split_turns stopping_paths TurnsError"
        ),
        "evidence.claims": "check_claims",
        "evidence.effects": "count_wins measured_effects read_quoted share_between share_clustered",
        "simulate.asking": "compare_designs simulate_designs",
        "simulate.conversations": "difference_error plan_conversations",
        "simulate.coverage": (
            "check_coverage check_saving simulate_coverage simulate_gate simulate_power"
        ),
        "simulate.faulty_judge": "recover_faults",
        "simulate.full_study": "calibrate Margins simulate_heart",
        "simulate.power": "Design minimum_gap plan_study",
        "simulate.study": "Panel simulate_raters simulate_study simulate_writers",
        "heartbench.formula": "ability_variance rubric_board score_rubric simulate_hits",
        "heartbench.linter": "lint_rubric lint_rule",
        "report.conversation": "practise_comparisons read_conversation",
        "report.figures": (
            "mark_simulated plot_boards plot_forest plot_intervals plot_leaderboard plot_measures"
            " plot_profile plot_trend use_book_style use_cjk_font"
        ),
        "report.gate_report": "read_sides write_reports",
        "report.kept": "kept",
        "report.leaderboard": "leaderboard_html weigh_by_hand write_leaderboard",
        "report.provenance": "methods note_tables read_glued show_versions",
        "report.seekers": "check_seekers",
        "report.tables": "glue_numbers in_words show_table write_excel",
    }.items()
    for name in names.split()
}

__all__ = [*_PUBLIC, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
