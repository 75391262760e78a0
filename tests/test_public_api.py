import pytest

import reyn


def test_the_public_api_is_sorted_and_frozen():
    assert reyn.__all__ == [
        "LATER",
        "Event",
        "Model",
        "ModelAnswer",
        "ModelRequest",
        "OSRuntime",
        "People",
        "Question",
        "ReynError",
        "RunResult",
        "Runtime",
        "SyncRuntime",
        "Usage",
        "__version__",
        "llm_chat",
        "llm_function",
        "tool",
    ]


def test_every_public_name_can_be_imported():
    for name in reyn.__all__:
        assert getattr(reyn, name) is not None
    assert reyn.Runtime is reyn.OSRuntime


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nothing"):
        reyn.nothing  # noqa: B018
