import pytest

import reyn


def test_the_door_is_small_sorted_and_frozen():
    assert reyn.__all__ == [
        "LATER",
        "Event",
        "Model",
        "ModelReply",
        "ModelRequest",
        "OSRuntime",
        "People",
        "ReynError",
        "RunResult",
        "Runtime",
        "SyncRuntime",
        "Usage",
        "Wait",
        "__version__",
    ]


def test_everything_named_at_the_door_is_there():
    for name in reyn.__all__:
        assert getattr(reyn, name) is not None
    assert reyn.Runtime is reyn.OSRuntime


def test_a_name_that_is_not_at_the_door_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nothing"):
        reyn.nothing  # noqa: B018
