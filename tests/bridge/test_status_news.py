"""What a written report adds to the story that ``kubectl describe`` tells."""

from bridge.status import list_news
from plnt.model.reports import Facts, build_report
from plnt.model.status import Phase
from tests.fakes.steps import make_desired, make_spec


def test_runtime_that_was_given_up_is_told_once() -> None:
    report = build_report(make_desired(spec=make_spec(runtime="tgi")), Facts(), "run", 1.0, 1)
    first = list_news({}, report)
    assert [(one.reason, one.is_warning) for one in first] == [("Validating", False), ("RuntimeDeprecated", True)]
    assert "vllm or sglang" in first[1].note
    before = {"phase": "Validating", "conditions": [{"type": "RuntimeDeprecated"}]}
    assert list_news(before, report) == []


def test_bad_end_is_told_with_its_error() -> None:
    report = build_report(make_desired(), Facts(phase=Phase.FAILED), "run", 1.0, 1)
    news = list_news({"phase": "Validating"}, report.model_copy(update={"last_error": "SpecInvalid: x"}))
    assert [(one.reason, one.note, one.is_warning) for one in news] == [("Failed", "SpecInvalid: x", True)]
