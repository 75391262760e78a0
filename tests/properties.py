"""The number of examples of a property. `make quick` tries a tenth of them."""

from __future__ import annotations

from collections.abc import Collection

from hypothesis import HealthCheck, settings

_MIN_EXAMPLES = 10


def examples(count: int, *, allow: Collection[HealthCheck] = ()) -> settings:
    """Return the settings of a property.

    Args:
        count: The number of examples in the full suite.
        allow: Health checks that the property fails on purpose.
    """
    if settings.get_current_profile_name() == "quick":
        count = max(_MIN_EXAMPLES, count // 10)
    return settings(max_examples=count, suppress_health_check=[*settings().suppress_health_check, *allow])
