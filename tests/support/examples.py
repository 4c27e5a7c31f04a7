"""How many examples a property test takes."""

from hypothesis import settings


def at_most(examples: int) -> settings:
    """Return settings for a test with dear examples: as many as the profile has, but no more than this."""
    profile = settings.get_profile(settings.get_current_profile_name())
    return settings(max_examples=min(examples, profile.max_examples))
